"""Which folders of a home are runs, including those that can no longer be read."""

import re
from pathlib import Path

from convkit.home import Home
from convkit.record.provenance import FILE_NAME

_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
# Nightly runs have folders with ids of the same form, and are no runs.
_NIGHTLY = "nights"


def is_run(folder: Path) -> bool:
    """Say whether a folder is a run's: by what is in it or, if that is gone, by its name."""
    if not folder.is_dir():
        return False
    if any((folder / name).is_file() for name in ("result.json", FILE_NAME)):
        return True
    return is_run_id(folder.name) and folder.absolute().parent.name != _NIGHTLY


def is_run_id(name: str) -> bool:
    """Say whether a name has the form of a run's id."""
    return _RUN_ID.fullmatch(name) is not None


def run_folders(home: Home) -> list[Path]:
    """Return the folders of all runs in a home, newest first."""
    store = home.store
    found = [
        folder for folder in home.root.glob("*/*") if folder.parent != store and is_run(folder)
    ]
    return sorted(found, key=lambda folder: (folder.name, folder.parent.name), reverse=True)
