"""Finds the run folders in a home, including unreadable ones."""

from pathlib import Path

from convkit.home import Home, is_run, is_run_id

__all__ = ["is_run", "is_run_id", "run_folders"]


def run_folders(home: Home) -> list[Path]:
    """Return the folders of all runs in a home, newest first."""
    return home.run_folders()
