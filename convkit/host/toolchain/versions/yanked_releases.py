"""Yanked releases: reported by uv when it queries the index, stored along with the exact versions.

A yanked release stays on the index and is installed only if pinned exactly. uv warns about it when
it resolves or installs. Nothing here queries an index: if everything is cached, only earlier
warnings are known.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.store.durable_files import write_whole

# As uv 0.8 to 0.13 print it: `alpha==1.1` is yanked (reason: "broken build")
_WARNING = re.compile(r'`([A-Za-z0-9._-]+)==([^`\s]+)` is yanked(?: \(reason: "?(.*?)"?\))?$')
_LINE = re.compile(r"# yanked: ([A-Za-z0-9._-]+)==(\S+)(?: (.*))?")
_NO_REASON = "no reason given"


def yanked_in(warnings: Iterable[str]) -> dict[str, str]:
    """Return the yanked packages in uv's warnings: normalized name to reason."""
    found = (_WARNING.search(warning) for warning in warnings)
    return {str(canonicalize_name(match[1])): _one_line(match[3]) for match in found if match}


def yanked_lines(packages: Mapping[str, str], yanked: Mapping[str, str]) -> str:
    """Return comment lines that record yanked releases in a file of pins."""
    return "".join(
        f"# yanked: {name}=={packages[name]} {reason}\n" for name, reason in sorted(yanked.items())
    )


def read_yanked(text: str, packages: Mapping[str, str]) -> dict[str, str]:
    """Return the yanked releases recorded in a file of pins, for the versions it pins: name to
    reason.
    """
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return {
        match[1]: match[3] or _NO_REASON
        for match in found
        if match and packages.get(match[1]) == match[2]
    }


def remember_yanked(
    pins: str, yanked: Mapping[str, str], packages: Mapping[str, str], resolutions: Path
) -> None:
    """Add yanked releases to every cached resolution that consists of these pins."""
    for file in sorted(resolutions.glob("*.txt")):
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # a damaged one is resolved anew when it is needed
        without = "".join(
            line for line in text.splitlines(keepends=True) if not line.startswith("#")
        )
        known = read_yanked(text, packages)
        if without != pins or known.keys() >= yanked.keys():
            continue
        write_whole(file, without + yanked_lines(packages, {**known, **yanked}))


def _one_line(reason: str | None) -> str:
    return " ".join((reason or "").split()) or _NO_REASON
