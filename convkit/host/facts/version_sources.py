"""Sources of a run's exact versions: the recipe's lock, earlier resolutions, or a past run."""

import os
from collections.abc import Callable, Mapping

from convkit.host.home import Home
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.toolchain.versions.lockfile import lock_file, read_lock, this_platform
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve, resolved
from convkit.protocol.errors import ToolchainError

# Returns the versions for a specification; None if they are unknown and must not be resolved.
Resolver = Callable[[EnvironmentSpec], Resolution | None]


def recipe_tools(
    loaded: LoadedRecipe, home: Home, *, may_resolve: bool, strict: bool = True
) -> Resolver:
    """Return a recipe's resolver: its lock if it has one, else this home's resolutions.

    Raises ToolchainError for an unreadable lock. The resolver raises it for a specification that
    the lock does not have, unless `strict` is false: a repair changes the recipe that was locked.
    """
    file = lock_file(loaded.path)
    lock = read_lock(file)

    def choose(spec: EnvironmentSpec) -> Resolution | None:
        locked = lock.resolution(spec, this_platform()) if lock is not None else None
        if locked is not None:
            return locked
        if lock is not None and strict:
            name, recipe = os.path.relpath(file), os.path.relpath(loaded.path)
            if lock.is_left_out(spec):
                raise ToolchainError(
                    f"{name} has no versions for {', '.join(spec.requirements)}: they were not on"
                    " the package index of the machine that wrote it. On a machine whose index has"
                    f" them: convkit lock {recipe}"
                )
            if lock.find(spec) is not None:
                here = this_platform()
                raise ToolchainError(
                    f"{name} has no versions for {here}; add them: convkit lock {recipe} --platform"
                    f" {here}"
                )
            raise ToolchainError(
                f"{name} is out of date: nothing is locked for"
                f" {', '.join(spec.requirements)} on Python {spec.python}. Lock it again: convkit"
                f" lock {recipe}"
            )
        return resolve(spec, home.root) if may_resolve else resolved(spec, home.root)

    return choose


def recorded_tools(recorded: Mapping[EnvironmentSpec, Resolution]) -> Resolver:
    """Return a resolver for a past run's versions; it raises ToolchainError for others."""

    def choose(spec: EnvironmentSpec) -> Resolution:
        if spec not in recorded:
            raise ToolchainError(f"the run recorded no versions for {', '.join(spec.requirements)}")
        return recorded[spec]

    return choose
