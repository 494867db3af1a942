"""Where a run's exact versions come from: a lock beside the recipe, what was resolved before, or a
past run.
"""

import os
from collections.abc import Callable, Mapping

from convkit.errors import ToolchainError
from convkit.home import Home
from convkit.recipe.loading import LoadedRecipe
from convkit.toolchain.lockfile import lock_file, read_lock, this_platform
from convkit.toolchain.requirements import EnvironmentSpec
from convkit.toolchain.resolution import Resolution, resolve, resolved

# Gives the versions for a specification; None where they are not known yet, and are not to be
# looked for.
Resolver = Callable[[EnvironmentSpec], Resolution | None]


def recipe_tools(
    loaded: LoadedRecipe, home: Home, *, may_resolve: bool, strict: bool = True
) -> Resolver:
    """Return the resolver of a recipe: its lock, where there is one, else what was or is resolved
    in this home.

    Raises ToolchainError for a lock that cannot be read. The resolver raises it for a specification
    that the lock does not have, unless `strict` is false: a repair's recipe is not the one that was
    locked.
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
                f"{name} does not fit the recipe: nothing is locked for"
                f" {', '.join(spec.requirements)} on Python {spec.python}. Lock it again: convkit"
                f" lock {recipe}"
            )
        return resolve(spec, home.root) if may_resolve else resolved(spec, home.root)

    return choose


def recorded_tools(recorded: Mapping[EnvironmentSpec, Resolution]) -> Resolver:
    """Return a resolver that knows what a past run recorded, and nothing else; it raises
    ToolchainError for more.
    """

    def choose(spec: EnvironmentSpec) -> Resolution:
        if spec not in recorded:
            raise ToolchainError(f"the run recorded no versions for {', '.join(spec.requirements)}")
        return recorded[spec]

    return choose
