"""Where convkit keeps what it makes: one folder, `runs/` by default."""

import dataclasses
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Home:
    """The folder that holds the store, environments, MLflow's database and a folder per run."""

    root: Path

    @classmethod
    def find(cls, given: Path | None) -> "Home":
        """Return the home named on the command line, by CONVKIT_HOME, or `runs/` in the current
        folder.
        """
        chosen = given or Path(os.environ.get("CONVKIT_HOME") or "runs")
        return cls(chosen.expanduser().absolute())

    @property
    def store(self) -> Path:
        """The content-addressed store."""
        return self.root / "store"

    def runs_of(self, recipe: str) -> Path:
        """The folder of a recipe's runs."""
        return self.root / recipe
