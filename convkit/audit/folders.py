"""Which folders of a home are runs: also those that cannot be read any more."""

import re
from pathlib import Path

from convkit.home import Home
from convkit.record.provenance import FILE_NAME

_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def is_run(folder: Path) -> bool:
    """Say whether a folder is a run's: by what lies in it, or, where that is gone, by its name."""
    if not folder.is_dir():
        return False
    return any((folder / name).is_file() for name in ("result.json", FILE_NAME)) or is_run_id(
        folder.name
    )


def is_run_id(name: str) -> bool:
    """Say whether a name is made as the ids of runs are."""
    return _RUN_ID.fullmatch(name) is not None


def run_folders(home: Home) -> list[Path]:
    """Return the folders of all runs in a home, newest first."""
    store = home.store
    found = [
        folder for folder in home.root.glob("*/*") if folder.parent != store and is_run(folder)
    ]
    return sorted(found, key=lambda folder: (folder.name, folder.parent.name), reverse=True)
