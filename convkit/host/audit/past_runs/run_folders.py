"""Finds the run folders in a home, including unreadable ones, and digests what may be in them."""

import os
from pathlib import Path

from convkit.host.home import Home, is_run, is_run_id
from convkit.host.store.digests import digest_file
from convkit.protocol.built_model_origin import ORIGIN_FILE
from convkit.protocol.errors import UsageError, storage_error

__all__ = ["digests_of", "is_run", "is_run_id", "run_folders"]


def run_folders(home: Home) -> list[Path]:
    """Return the folders of all runs in a home, newest first."""
    return home.run_folders()


def digests_of(path: Path, *, origins: bool = True) -> set[str]:
    """Return the SHA-256 of a file, or of every file in a folder; without `origins`, those of
    `origin.json` are left out: the same model has another one in each run.
    """
    files = (
        [path]
        if path.is_file()
        else [
            Path(parent) / name
            for parent, _, names in os.walk(path)
            for name in names
            if origins or name != ORIGIN_FILE
        ]
    )
    if not files:
        raise UsageError(
            f"{path}: an empty folder; name a built file, a folder of built files, or a run"
        )
    try:
        return {digest_file(file) for file in files}
    except OSError as error:
        raise storage_error(error, path) from error
