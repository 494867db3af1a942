"""`convkit lock`: resolves every environment that a recipe can need, on any platform."""

import dataclasses
import importlib.metadata
from collections.abc import Iterable, Mapping
from pathlib import Path

from convkit.host.facts.locked_packages import model_packages, pin_of
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.toolchain.environments.model_packages import release_hashes
from convkit.host.toolchain.versions.lockfile import (
    PLATFORMS,
    Lock,
    LockedEnvironment,
    UnlockedEnvironment,
    this_platform,
)
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec, package_name
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve_anew
from convkit.protocol.errors import ToolchainError, UsageError
from convkit.protocol.installation import full_version


@dataclasses.dataclass(frozen=True)
class Locked:
    """A new lock, and why environments that could not be resolved are missing from it."""

    lock: Lock
    failed: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Upgrade:
    """Which tools may be upgraded beyond the existing lock: all, or those named."""

    everything: bool = False
    tools: tuple[str, ...] = ()

    def preferred(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the versions to keep."""
        named = {package_name(tool) for tool in self.tools}
        return (
            {} if self.everything else {name: v for name, v in before.items() if name not in named}
        )


def recipe_environments(recipe: Recipe) -> dict[EnvironmentSpec, tuple[str, ...]]:
    """Return every environment that a recipe's stages use, with and without devices, with the
    stages that use it.
    """
    stages: dict[EnvironmentSpec, list[str]] = {}
    lacking = frozenset(
        part
        for graph in recipe.graphs
        for target in graph.targets.values()
        for part in (target.device, target.runtime)
    ) - {"cpu"}
    # A machine that lacks a device runs a different plan, with different environments.
    for absent in (frozenset[str](), lacking):
        for stage in plan_stages(recipe, (), absent):
            stages.setdefault(stage.environment, []).append(stage.id)
    return {spec: tuple(dict.fromkeys(names)) for spec, names in stages.items()}


def lock_recipe(
    loaded: LoadedRecipe, before: Lock | None, platforms: Iterable[str], upgrade: Upgrade
) -> Locked:
    """Return a lock of a recipe's tools for platforms (default: the lock's, else this one).

    Versions stay as they are if the recipe allows them and `upgrade` does not name them. An
    environment that needs a package that the index lacks is left out and reported. Raises
    UsageError for an unknown platform or tool, ToolchainError if nothing can be resolved.
    """
    chosen = (
        tuple(platforms) or tuple(before.hashes if before is not None else ()) or (this_platform(),)
    )
    for platform in chosen:
        if platform not in PLATFORMS:
            raise UsageError(
                f"--platform {platform}: unknown platform; choose from {', '.join(PLATFORMS)}"
            )
    environments: list[LockedEnvironment] = []
    hashes: dict[str, dict[str, tuple[str, ...]]] = {platform: {} for platform in sorted(chosen)}
    failed: dict[str, str] = {}
    left_out: list[UnlockedEnvironment] = []
    for spec, stages in recipe_environments(loaded.recipe).items():
        known = _nearest(before, spec, stages)
        try:
            found = {platform: _resolve(spec, platform, known, upgrade) for platform in chosen}
        except ToolchainError as error:
            failed[", ".join(stages)] = str(error)
            left_out.append(UnlockedEnvironment(stages, spec.python, spec.requirements))
            continue
        packages = {platform: resolution.packages for platform, resolution in found.items()}
        environments.append(LockedEnvironment(stages, spec.python, spec.requirements, packages))
        for platform, resolution in found.items():
            hashes[platform] |= {
                f"{name}=={v}": resolution.hashes[name] for name, v in resolution.packages.items()
            }
    if not environments:
        raise ToolchainError("no environment could be resolved: " + "; ".join(failed.values()))
    _check_tools(upgrade, environments)
    pinned = _lock_packages(loaded.recipe, before, upgrade, failed)
    lock = Lock(
        loaded.recipe.name, tuple(environments), hashes, tuple(left_out), pinned, own_versions()
    )
    return Locked(lock, failed)


def own_versions() -> dict[str, str]:
    """Return the versions of convkit (with its commit) and of uv, which builds environments."""
    return {"convkit": full_version(), "uv": importlib.metadata.version("uv")}


def tool_mismatches(lock: Lock) -> list[str]:
    """Return where convkit or uv differ from those that a lock was made with, one line each."""
    own = own_versions()
    return [
        f"locked with {name} {version}; this is {own[name]}"
        for name, version in lock.made_with.items()
        if name in own and own[name] != version
    ]


def _lock_packages(
    recipe: Recipe, before: Lock | None, upgrade: Upgrade, failed: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the hashes of the packages that carry the recipe's models; what the index lacks goes
    to `failed`. A release stays what it was, unless everything is upgraded.
    """
    known = before.model_packages if before is not None and not upgrade.everything else {}
    found: dict[str, tuple[str, ...]] = {}
    for package in model_packages(recipe):
        pin = pin_of(package)
        try:
            found[pin] = known.get(pin) or release_hashes(package.name, package.version)
        except ToolchainError as error:
            failed[f"model.package {pin}"] = str(error)
    return found


def check_lock(loaded: LoadedRecipe, lock: Lock | None, file: Path) -> list[str]:
    """Return how a lock differs from what its recipe needs, one line each; empty if it is up to
    date. Does not contact the index.
    """
    if lock is None:
        return [f"{file}: no such lock; create it with `convkit lock {loaded.path}`"]
    wanted = recipe_environments(loaded.recipe)
    problems = []
    for spec, stages in wanted.items():
        if lock.find(spec) is None and not lock.is_left_out(spec):
            problems.append(
                f"{', '.join(stages)}: {_difference(spec, _nearest(lock, spec, stages))}"
            )
    for each in lock.environments:
        if not any(
            (each.python, each.requirements) == (spec.python, spec.requirements) for spec in wanted
        ):
            problems.append(
                f"{', '.join(each.stages)}: locked for requirements that the recipe no longer has"
            )
        problems += [
            f"{', '.join(each.stages)}: not locked for {platform}"
            for platform in lock.hashes
            if platform not in each.packages
        ]
    pins = [pin_of(package) for package in model_packages(loaded.recipe)]
    problems += [
        f"model.package: {pin} is not locked" for pin in pins if pin not in lock.model_packages
    ]
    problems += [
        f"model.package: {pin} is locked, and the recipe has no such model"
        for pin in lock.model_packages
        if pin not in pins
    ]
    return problems


def _resolve(
    spec: EnvironmentSpec, platform: str, known: LockedEnvironment | None, upgrade: Upgrade
) -> Resolution:
    preferred = upgrade.preferred(known.packages.get(platform, {}) if known is not None else {})
    return resolve_anew(
        spec, None if platform == this_platform() else PLATFORMS[platform], preferred
    )


def _nearest(
    lock: Lock | None, spec: EnvironmentSpec, stages: tuple[str, ...]
) -> LockedEnvironment | None:
    """Return the lock entry for a specification, or for its stages before the recipe changed."""
    if lock is None:
        return None
    exact = lock.find(spec)
    return exact or next(
        (each for each in lock.environments if set(each.stages) & set(stages)), None
    )


def _difference(spec: EnvironmentSpec, locked: LockedEnvironment | None) -> str:
    if locked is None:
        return "not locked"
    if spec.python != locked.python:
        return f"the recipe asks for Python {spec.python}; locked for {locked.python}"
    new = [line for line in spec.requirements if line not in locked.requirements]
    old = [line for line in locked.requirements if line not in spec.requirements]
    return f"the recipe asks for {', '.join(new) or 'less'}; locked for {', '.join(old) or 'less'}"


def _check_tools(upgrade: Upgrade, environments: Iterable[LockedEnvironment]) -> None:
    known = {
        name for each in environments for packages in each.packages.values() for name in packages
    }
    for tool in upgrade.tools:
        if package_name(tool) not in known:
            raise UsageError(
                f"--upgrade {tool}: no environment of this recipe contains it;"
                f" {', '.join(sorted(known)[:8])}, ..."
            )
