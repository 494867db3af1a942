"""Detects, from uv's messages, that a requested release is gone from the index, yanked, or never
existed.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from convkit.toolchain.requirements import CONVKIT_DEFAULT, EnvironmentSpec, package_name
from convkit.toolchain.uv import Failure

# The origin of exact versions: the index at the time, a committed lock, or a past run's record.
VersionSource = Literal["index", "lock", "run"]

_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*?)"
_GONE = re.compile(rf"there is no version of {_NAME}(?:\[\S*?\])?===?([^\s,]+)")
_YANKED = re.compile(rf"{_NAME}==(\S+) was yanked(?: \(reason: (.*?)\))?(?=[\s,]|$)")
_UNKNOWN = re.compile(
    rf"Because {_NAME}(?:\[\S*?\])? was not found in the (?:package registry|provided package"
    r" locations)"
)


def missing_release(words: str, spec: EnvironmentSpec) -> str | None:
    """Return the missing release, the recipe key that requests it, and the fix; None if uv's
    message is about something else.

    Considers only packages that the specification itself names, and only messages about a single
    one: for conflicts and missing dependencies, uv's own explanation is better.
    """
    text = " ".join(words.split())
    named = (package_name(word) for word in re.split(r"[\s`(),]+", text) if word)
    asked = {package_name(line): line for line in spec.requirements}
    if len(asked.keys() & set(named)) != 1:
        return None
    for pattern, tell in ((_YANKED, _yanked), (_GONE, _gone), (_UNKNOWN, _unknown)):
        for match in pattern.finditer(text):
            line = asked.get(package_name(match[1]))
            if line is not None:
                return f"{tell(match)} {_asker(line, spec)} {_FIX}"
    return None


def explain_failed_installation(
    failure: Failure, packages: Mapping[str, str], source: VersionSource, resolutions: Path
) -> str:
    """Return why exact versions (by package) could not be installed.

    If a release is gone, also explains where it is pinned and how to proceed.
    """
    count = len(packages)
    doing = f"installing {count} package{'s' if count > 1 else ''} failed:"
    told = " ".join(failure.words.split()) if failure.kind == "no_versions" else ""
    gone, unknown = _GONE.search(told), _UNKNOWN.search(told)
    if gone is not None:
        name, version, what = gone[1], gone[2], _gone(gone)
    elif unknown is not None and unknown[1] in packages:
        name, version, what = unknown[1], packages[unknown[1]], _unknown(unknown)
    else:
        return f"{doing} {failure.advice()}\n{failure.words}"
    how = _pinned_by(f"{name}=={version}", name, source, resolutions)
    return (
        f"{doing} {what} {how} Or name a folder with the wheel in UV_FIND_LINKS.\n{failure.words}"
    )


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


_FIX = (
    "Write a release there that the index has, or name a folder with the wheel in UV_FIND_LINKS;"
    " then run again: nothing of this failure is kept."
)


def _gone(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]} is not on the index: it was removed, or never released."


def _yanked(match: re.Match[str]) -> str:
    reason = f", with the words {match[3]!r}" if match[3] else ""
    return (
        f"{match[1]} {match[2]} is yanked: its makers withdrew it{reason}. Such a release is only"
        " taken where it is "
        f'pinned exactly ({match[1]}: "=={match[2]}").'
    )


def _unknown(match: re.Match[str]) -> str:
    return f"there is no package {match[1]} on the index."


def _asker(line: str, spec: EnvironmentSpec) -> str:
    name = package_name(line)
    origin = spec.origin(name)
    if origin == CONVKIT_DEFAULT:
        return f"{line} is {origin}; tools.{name} in the recipe takes its place."
    return f"{line} comes from {origin or 'the recipe'}."
