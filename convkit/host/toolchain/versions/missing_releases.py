"""Finds the requested releases that the index does not have, when uv cannot resolve or install.

uv is asked again for each suspect alone, without dependencies, and its answer decides: what uv
cannot resolve even then is missing. uv's own words only hint at releases that may be yanked, which
uv then confirms in the same way.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from convkit.host.toolchain.versions.stage_requirements import (
    CONVKIT_DEFAULT,
    EnvironmentSpec,
    package_name,
)
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv

# The origin of exact versions: the index at the time, a committed lock, or a past run's record.
VersionSource = Literal["index", "lock", "run"]

_YANKED = re.compile(r"([A-Za-z0-9][\w.-]*)==(\S+) was yanked(?: \(reason: (.*?)\))?(?=[\s,]|$)")
_MOST_NAMED = 3
_FIX = (
    "Write a release there that the index has, or name a folder with the wheel in UV_FIND_LINKS;"
    " then run again: failures are not cached."
)


def missing_releases(
    failure: Failure, spec: EnvironmentSpec, options: Sequence[str] = ()
) -> str | None:
    """Return the missing releases, the recipe keys that request them, and the fix; None if each
    requirement can be met alone, so that uv's own explanation is better.

    `options` are those that uv resolved with.
    """
    if failure.kind != "no_versions":
        return None
    missing = _first(_unresolvable(spec.requirements, spec.python, options))
    if not missing:
        return None
    sentences = [
        f"{_describe(line, failure, spec.python, options)} {_asker(line, spec)}" for line in missing
    ]
    return " ".join([*sentences, _FIX])


def explain_failed_installation(
    failure: Failure, requirements: Sequence[str], python: str, source: VersionSource, folder: Path
) -> str:
    """Return why exact versions (lines `name==version`) could not be installed.

    If releases are gone, also explains where they are pinned and how to proceed. `folder` is that
    of the cached resolutions.
    """
    count = len(requirements)
    doing = f"installing {count} package{'s' if count > 1 else ''} failed:"
    missing = _first(_unresolvable(requirements, python)) if failure.kind == "no_versions" else []
    if not missing:
        return f"{doing} {failure.advice()}\n{failure.words}"
    sentences = [
        f"{_describe(pin, failure, python)} {_pinned_by(pin, package_name(pin), source, folder)}"
        for pin in missing
    ]
    return (
        f"{doing} {' '.join(sentences)} Or name a folder with the wheel in UV_FIND_LINKS.\n"
        f"{failure.words}"
    )


def _first(missing: Iterator[str]) -> list[str]:
    # On a wrong index everything is missing, and each costs a few calls of uv.
    return list(itertools.islice(missing, _MOST_NAMED))


def _unresolvable(
    requirements: Sequence[str], python: str, options: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the requirements that uv cannot resolve alone, by bisection."""
    if not requirements or _resolves(requirements, python, options):
        return
    if len(requirements) == 1:
        yield requirements[0]
        return
    half = len(requirements) // 2
    for part in (requirements[:half], requirements[half:]):
        yield from _unresolvable(part, python, options)


def _resolves(requirements: Sequence[str], python: str, options: Sequence[str] = ()) -> bool:
    """Return False if the index has no releases that meet the requirements themselves."""
    arguments = ["pip", "compile", "-", "--no-deps", "--python-version", python, *options]
    answer = attempt_uv(arguments, given="\n".join(requirements))
    return not (isinstance(answer, Failure) and answer.kind == "no_versions")


def _describe(line: str, failure: Failure, python: str, options: Sequence[str] = ()) -> str:
    """Return what the index lacks, for a requirement that uv cannot resolve alone."""
    requirement = Requirement(line)
    name = package_name(line)
    here = f"for Python {python} on this platform"
    if not _resolves([name], python, options):
        return f"the index has no release of {name} {here}."
    if exact := re.fullmatch(r"===?([^*]+)", str(requirement.specifier)):
        return (
            f"the index has no {name} {exact[1]} {here}: it was removed, never released, or not"
            " built for it."
        )
    for match in _YANKED.finditer(" ".join(failure.words.split())):
        version = match[2]
        if package_name(match[1]) == name and _resolves([f"{name}=={version}"], python, options):
            reason = f", saying {match[3]!r}" if match[3] else ""
            return (
                f"{name} {version} is yanked: its maintainers withdrew it{reason}. Such a release "
                f'is only used if it is pinned exactly ({name}: "=={version}").'
            )
    return f"the index has no release of {name} {here} that meets {requirement.specifier}."


def _pinned_by(pin: str, name: str, source: VersionSource, resolutions: Path) -> str:
    """Return what pins a missing release, and the fix."""
    match source:
        case "lock":
            return "The recipe's lock pins it: lock the tools again (convkit lock)."
        case "run":
            return "A past run used it, and can be reproduced only with that release."
        case "index":
            files = [
                file
                for file in sorted(resolutions.glob("*.txt"))
                if pin in file.read_text("utf-8").split()
            ]
            where = (
                ", ".join(str(file) for file in files) or "the versions that were resolved before"
            )
            return (
                f"It is pinned by {where}: delete that, and the recipe's tools are resolved anew"
                f" (tools.{name} chooses another release)."
            )


def _asker(line: str, spec: EnvironmentSpec) -> str:
    name = package_name(line)
    origin = spec.origin(name)
    if origin == CONVKIT_DEFAULT:
        return f"{line} is {origin}; tools.{name} in the recipe takes its place."
    return f"{line} comes from {origin or 'the recipe'}."
