"""Detects devices and libraries that a recipe's targets need but this machine lacks."""

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.toolchain.device_detection import find_device
from convkit.host.toolchain.environments.host_environment import host_has
from convkit.host.toolchain.versions.stage_requirements import environment_spec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import ToolchainError


def absent_parts(
    recipe: Recipe, home: Home, toolchain: ToolchainKind, *, may_resolve: bool
) -> dict[str, str]:
    """Return the devices and runtimes that targets need but this machine lacks, with what was found
    instead.

    With `may_resolve`, packages that few indexes carry are looked up if their device is present.
    """
    if recipe.parts:
        return {
            name: why
            for part in recipe.graphs
            for name, why in absent_parts(part, home, toolchain, may_resolve=may_resolve).items()
        }
    absent = {}
    for device in dict.fromkeys(target.device for target in recipe.targets.values()):
        found = find_device(device)
        if not found.there:
            absent[str(device)] = f"this machine has no {device} device ({found.detail})"
    for name, target in recipe.targets.items():
        if target.runtime_package is None or target.device in absent:
            continue
        why = _missing_package(
            recipe, name, target.runtime_package, home, toolchain, may_resolve=may_resolve
        )
        if why is not None:
            absent[target.runtime] = why
    return absent


def _missing_package(
    recipe: Recipe,
    target: str,
    package: str,
    home: Home,
    toolchain: ToolchainKind,
    *,
    may_resolve: bool,
) -> str | None:
    """Return why a runtime's package cannot be installed here; None if it can."""
    if toolchain == "host":
        return None if host_has(package) else f"this environment has no {package}"
    if not may_resolve:
        return None
    try:
        resolve(environment_spec(recipe, "build", target, None), home.root)
    except ToolchainError as error:
        return f"the packages of {package} are not available here: {str(error).splitlines()[0]}"
    return None
