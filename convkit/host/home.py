"""convkit's folder for everything it creates, `runs/` by default.

    results/<recipe>/<run id>/   finished runs
    store/                       stages' artifacts, by content (see `convkit.host.store.store`)
    environments/ packages/ resolutions/ scratch/ nights/ mlflow.db mlartifacts/ ...

Earlier releases stored a recipe's runs directly in the home (`<recipe>/<run id>/`), where a recipe
named `environments` or `store` collided with the home's own folders. Those runs are still found.
"""

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

_RUNS = "results"
_NIGHTLY = "nights"
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
# Files that a finished run leaves in its folder; either one identifies the folder as a run's.
_RECORD = "result.json"
_PROVENANCE = "provenance.json"
# Other folders at the home's top level. Folders inside are runs only if all criteria are met.
_OWN = frozenset(
    {
        *(_RUNS, _NIGHTLY, "store", "environments", "packages", "resolutions", "scratch"),
        *("mlartifacts", "fleet", "shared", "crashes", "tune", "residents", "registry"),
    }
)


@dataclasses.dataclass(frozen=True)
class Home:
    """The folder that contains the store, environments, MLflow's database and the runs."""

    root: Path

    @classmethod
    def find(cls, given: Path | None) -> "Home":
        """Return the home: as named on the command line, CONVKIT_HOME, or `runs/`."""
        chosen = given or Path(os.environ.get("CONVKIT_HOME") or "runs")
        return cls(chosen.expanduser().absolute())

    @property
    def store(self) -> Path:
        """The content-addressed store."""
        return self.root / "store"

    def runs_of(self, recipe: str) -> Path:
        """The folder for a recipe's new runs."""
        return self.root / _RUNS / recipe

    def run_folders(self) -> list[Path]:
        """Return the folders of all runs, newest first, from any release. Each is named after the
        run's id and is in a folder named after the recipe.

        This includes damaged runs: a folder counts if it contains a run's files or, if those are
        gone, if its name is a run id.
        """
        found = {*self._runs(), *self._runs_of_old_homes()}
        return sorted(found, key=lambda folder: (folder.name, folder.parent.name), reverse=True)

    def _runs(self) -> Iterator[Path]:
        yield from (path for path in (self.root / _RUNS).glob("*/*") if is_run(path))

    def _runs_of_old_homes(self) -> Iterator[Path]:
        for path in self.root.glob("*/*"):
            if path.parent.name not in _OWN:
                if is_run(path):
                    yield path
            elif is_run_id(path.name) and (path / _RECORD).is_file():
                yield path  # a recipe with the same name as one of the home's own folders


def is_run(folder: Path) -> bool:
    """Return True if a folder is a run's, judging by its files or, if those are gone, by its name.

    Nightly runs have ids of the same form but are not runs.
    """
    if not folder.is_dir():
        return False
    if any((folder / name).is_file() for name in (_RECORD, _PROVENANCE)):
        return True
    if _is_nightly(folder.absolute()):
        return False
    return is_run_id(folder.name)


def _is_nightly(folder: Path) -> bool:
    """Return True if a folder is a nightly run's, not a recipe's of such a name."""
    return folder.parent.name == _NIGHTLY and folder.parent.parent.name != _RUNS


def is_run_id(name: str) -> bool:
    """Return True if a name has the form of a run id."""
    return _RUN_ID.fullmatch(name) is not None


def home_around(folder: Path) -> Path:
    """Return the root of the home that contains a run's folder, in either layout."""
    above = folder.resolve().parent.parent
    if above.name == _RUNS and not (above / "store" / "objects").is_dir():
        return above.parent
    return above
