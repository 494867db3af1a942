"""`--toolchain host`: uses the current environment instead of isolated ones."""

import functools
import importlib.metadata
import os
import platform
import site
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from convkit.host.toolchain.environments.environment_builds import Environment
from convkit.host.toolchain.versions.incompatible_pairs import broken_pairs
from convkit.host.toolchain.versions.stage_requirements import CONVKIT_DEFAULT, EnvironmentSpec
from convkit.protocol.errors import ToolchainError


def host_python() -> Path:
    """Return the current environment's interpreter."""
    return Path(sys.executable)


def host_environment(spec: EnvironmentSpec) -> Environment:
    """Return the current environment if it satisfies a specification; otherwise raises
    ToolchainError.
    """
    return Environment(host_python(), "host", host_packages(spec))


def host_packages(spec: EnvironmentSpec) -> dict[str, str]:
    """Return the installed versions of a specification's packages and all their dependencies, by
    name.

    Raises ToolchainError that lists all packages that are missing or of an incompatible release.
    """
    if problems := check_host(spec):
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ToolchainError(
            f"--toolchain host: this environment ({sys.prefix}) does not match the recipe's "
            f"tools:{listed}\nInstall these here, change tools: in the recipe, or leave --toolchain"
            " host out."
        )
    return _installed(spec)


def host_has(package: str) -> bool:
    """Return True if the current environment has a package."""
    return _version(package) is not None


def check_host(spec: EnvironmentSpec) -> list[str]:
    """Return the packages of a specification that the current environment lacks or has in an
    incompatible release, one line each.

    For packages whose releases the recipe leaves to convkit's defaults, any release is accepted:
    choosing the environment was a choice of releases.
    """
    problems: list[str] = []
    python = platform.python_version()
    if spec.origin("python") != CONVKIT_DEFAULT and not f"{python}.".startswith(f"{spec.python}."):
        problems.append(
            f"Python is {python}; {spec.origin('python') or 'the recipe'} says {spec.python}"
        )
    for line in spec.requirements:
        requirement = Requirement(line)
        origin = spec.origin(canonicalize_name(requirement.name)) or "the recipe"
        found = _version(requirement.name)
        if found is None:
            lacks = _why_missing(requirement.name)
            problems.append(f"{requirement.name} {lacks}; {origin} says {line}")
        elif origin != CONVKIT_DEFAULT and not requirement.specifier.contains(
            found, prereleases=True
        ):
            problems.append(f"{requirement.name} is {found}; {origin} says {line}")
    problems += [f"{pair}" for pair in broken_pairs(_installed(spec), for_all=True)]
    return problems


def _installed(spec: EnvironmentSpec) -> dict[str, str]:
    """Return the installed versions of the named packages and all their transitive dependencies."""
    folders = _searched_folders()
    versions: dict[str, str] = {}
    waiting = [Requirement(line) for line in spec.requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found = _read(name, extras, folders)
        if found is None:
            continue  # optional, or reported by check_host
        provider, version, dependencies = found
        versions[provider] = version
        waiting += dependencies
    return dict(sorted(versions.items()))


_Folders = tuple[tuple[str, int], ...]


def _searched_folders() -> _Folders:
    """Return the folders that a stage's process finds packages in, each with the time of its last
    change: installing or removing a package changes it.
    """
    found = []
    hidden = _hidden_folders()
    for folder in sys.path:
        if not folder or str(Path(folder).absolute()) in hidden:
            continue
        try:
            found.append((folder, os.stat(folder).st_mtime_ns))  # noqa: PTH116 - not a Path
        except OSError:
            continue  # an archive's entry, or a folder that does not exist
    return tuple(found)


def _hidden_folders() -> frozenset[str]:
    """Return the folders that only this process finds packages in: those of PYTHONPATH and the
    user's own, which no stage sees.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    hidden = {*filter(None, given), site.getusersitepackages()}
    everyones = {str(Path(each).absolute()) for each in site.getsitepackages()}
    return frozenset(str(Path(each).absolute()) for each in hidden) - everyones


def _why_missing(name: str) -> str:
    """Return what a package that stages do not find is, as the end of a sentence."""
    try:
        place = importlib.metadata.distribution(name).locate_file("")
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"
    return f"is only in {place}, which stages do not see: they ignore PYTHONPATH and user packages"


@functools.lru_cache(maxsize=4096)
def _read(
    name: str, extras: frozenset[str], folders: _Folders
) -> tuple[str, str, tuple[Requirement, ...]] | None:
    """Return the name and version of the distribution that provides a package, and its
    dependencies; None if it is not installed.

    Every stage's environment lists a hundred packages, and parsing their metadata costs more than
    the rest of a plan.
    """
    if (distribution := _providing(name, folders)) is None:
        return None
    # Each property of a distribution parses its metadata anew; eggs list requirements elsewhere.
    metadata = distribution.metadata
    lines = metadata.get_all("Requires-Dist") or distribution.requires or ()
    provider = canonicalize_name(metadata["Name"])
    return provider, metadata["Version"], _dependencies(lines, extras)


def _dependencies(lines: Iterable[str], extras: frozenset[str]) -> tuple[Requirement, ...]:
    found = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # metadata from before PEP 508
        environments: list[Mapping[str, str]] = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(
            requirement.marker.evaluate(dict(values)) for values in environments
        ):
            found.append(requirement)
    return tuple(found)


def _providing(name: str, folders: _Folders) -> importlib.metadata.Distribution | None:
    """Return the installed distribution of a name, or the one that provides the module of that
    name in its place: onnxruntime-gpu is onnxruntime, built for CUDA, and excludes it.
    """
    return _distribution(name, folders) or _standing_in(name, folders)


def _distribution(name: str, folders: _Folders) -> importlib.metadata.Distribution | None:
    places = [folder for folder, _ in folders]
    return next(iter(importlib.metadata.distributions(name=name, path=places)), None)


@functools.lru_cache(maxsize=256)
def _standing_in(name: str, folders: _Folders) -> importlib.metadata.Distribution | None:
    providers = importlib.metadata.packages_distributions().get(name.replace("-", "_"), [])
    variants = {each for each in providers if canonicalize_name(each).startswith(f"{name}-")}
    # Of two, nobody knows whose files are there.
    return _distribution(variants.pop(), folders) if len(variants) == 1 else None


def _version(name: str) -> str | None:
    found = _read(canonicalize_name(name), frozenset(), _searched_folders())
    return None if found is None else found[1]
