"""Finds the Python that an environment is created from."""

import functools
import json
import os
import platform
import sys
import sysconfig
from pathlib import Path

from convkit.host.toolchain.versions.default_releases import OLDEST_PYTHON
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv
from convkit.protocol.errors import ToolchainError


def platform_name() -> str:
    """Return the system, machine and C library, which determine the compatible wheels, such as
    linux-x86_64-glibc.
    """
    try:
        library = (
            "glibc"
            if "CS_GNU_LIBC_VERSION" in os.confstr_names and os.confstr("CS_GNU_LIBC_VERSION")
            else ""
        )
    except (OSError, ValueError):
        library = ""
    return "-".join(part for part in (sysconfig.get_platform(), library) if part)


@functools.cache
def find_interpreter(release: str, origin: str) -> Path:
    """Return a Python of a release (`3.11`, `3.11.7`) on this machine; raises ToolchainError that
    lists the available ones.

    `origin` is the recipe key that requests it.
    """
    parts = tuple(int(part) for part in release.split("."))
    if parts[:2] < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ToolchainError(
            f"{origin}: Python {release} is too old for convkit's workers, which need {oldest} or"
            " later"
        )
    if sys.version_info[: len(parts)] == parts and sys.implementation.name == "cpython":
        base = Path(
            getattr(sys, "_base_executable", sys.executable)
        )  # a virtual environment's own origin
        if base.is_file():
            return base
    found = attempt_uv(["python", "find", "--system", "--no-project", release])
    if isinstance(found, Failure):
        there = ", ".join(installed_pythons()) or "none"
        raise ToolchainError(
            f"{origin}: Python {release} is not on this machine (found: {there}). Install it, for"
            f" example with `uv python install {release}`, or name an installed one under"
            " tools.python."
        )
    return Path(found.strip())


def installed_pythons() -> tuple[str, ...]:
    """Return the Python releases that uv finds, oldest first."""
    listed = attempt_uv(
        ["python", "list", "--only-installed", "--no-project", "--output-format", "json"]
    )
    if isinstance(listed, Failure):
        return (platform.python_version(),)
    releases = {str(entry["version"]) for entry in json.loads(listed or "[]")}
    return tuple(
        sorted(
            releases,
            key=lambda text: [int(part) if part.isdigit() else 0 for part in text.split(".")],
        )
    )
