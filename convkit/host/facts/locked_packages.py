"""What a recipe's lock says of the packages that carry its models."""

import functools
import os
from pathlib import Path

from convkit.host.recipe.keys.recipe import PackageModel, Recipe
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.toolchain.versions.lockfile import Lock, lock_file, read_lock
from convkit.protocol.errors import ToolchainError


def pin_of(package: PackageModel) -> str:
    """Return a package's release as locks call it: `name==version`."""
    return f"{package.name}=={package.version}"


def model_packages(recipe: Recipe) -> list[PackageModel]:
    """Return the packages that the recipe's models come from, each release once."""
    recipes = (recipe, *recipe.graphs)
    models = [model for each in recipes for model in (each.model, each.reference_model)]
    found = [model.package for model in models if model.package is not None]
    return list({pin_of(package): package for package in found}.values())


def locked_hashes(loaded: LoadedRecipe, package: PackageModel) -> tuple[str, ...]:
    """Return the hashes that a recipe's lock has for a package; none if it has no lock.

    Raises ToolchainError for a lock that cannot be read, or does not have the release.
    """
    file = lock_file(loaded.path)
    try:
        status = file.stat()
    except OSError:
        return ()
    identity = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    lock = _read_once(file, identity)
    pin = pin_of(package)
    found = lock.model_packages.get(pin) if lock is not None else ()
    if found is None:
        raise ToolchainError(
            f"{os.path.relpath(file)} is out of date: model.package {pin} is not locked."
            f" Lock it again: convkit lock {os.path.relpath(loaded.path)}"
        )
    return found


@functools.lru_cache(maxsize=8)
def _read_once(file: Path, identity: tuple[int, ...]) -> Lock | None:  # noqa: ARG001 - of the file
    return read_lock(file)
