"""A copy of convkit to extend as CONTRIBUTING says, and its command line."""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import convkit

REPOSITORY = Path(__file__).parents[2]
PACKAGE = Path(convkit.__file__).parent


def copy_package(folder: Path) -> Path:
    """Copy the package into a folder; return the copy.

    Its bytecode comes along, and fits: a copied source has the time of its original. Other
    processes may be writing some of it.
    """
    unfinished = shutil.ignore_patterns("*.pyc.*")
    return Path(shutil.copytree(PACKAGE, folder / "convkit", ignore=unfinished))


def replace_once(file: Path, found: str, text: str) -> None:
    """Replace the only occurrence of a text in a file."""
    source = file.read_text(encoding="utf-8")
    assert source.count(found) == 1, f"{file} has {source.count(found)} of {found!r}"
    file.write_text(source.replace(found, text), encoding="utf-8")


def steps(heading: str) -> set[str]:
    """Return the files that a section of CONTRIBUTING lists."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE))


class Command:
    """`convkit` of a copy of the package, with its own home."""

    def __init__(self, copy: Path, home: Path) -> None:
        self.home = home
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"},
            "PYTHONPATH": str(copy.parent),
            "CONVKIT_HOME": str(home),
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from convkit.cli.main import main; main()", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
            cwd=self.home,
        )

    def logged(self, name: str) -> list[float]:
        """Return the values that MLflow has for a metric."""
        [database] = self.home.rglob("mlflow.db")
        with contextlib.closing(sqlite3.connect(database)) as connection:
            rows = connection.execute("SELECT value FROM metrics WHERE key = ?", (name,))
            return [value for (value,) in rows]
