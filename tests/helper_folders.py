"""Puts the folders of the tests on Python's path: helpers that test modules share lie beside them,
and are imported by their name, which is theirs alone.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).parent


def add_helper_folders() -> None:
    """Make every helper importable, and the packages among the tests."""
    known = set(sys.path)
    for folder, folders, _ in os.walk(TESTS):
        # Packages are imported from their parent's folder; `sitecustomize` acts where it is found.
        folders[:] = sorted(
            set(folders) - {"__pycache__", "emulation", "faults", "operators", "reports"}
        )
        if folder not in known:
            sys.path.append(folder)
