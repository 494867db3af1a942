"""Exports a lock as `pylock.<stage>.toml` (PEP 751), one file per environment, so that pip and
uv can install it without convkit.

A lock of convkit's own names no index and covers several platforms and stages. A pylock must say
where each file is, so it is made for one platform, from the index that this machine uses; each file
must have a hash that the lock has.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.toolchain.versions.lockfile import (
    PLATFORMS,
    Lock,
    LockedEnvironment,
    this_platform,
)
from convkit.host.toolchain.versions.version_resolution import pylock_text
from convkit.protocol.errors import ToolchainError, UsageError, storage_error


def write_pylocks(lock: Lock, folder: Path, platform: str | None = None) -> list[Path]:
    """Write a file for each of a lock's environments into a folder, and return them.

    `platform` is one that the lock covers; default: this one. Raises UsageError if the lock lacks
    it, ToolchainError if the index has other files than those that were locked.
    """
    chosen = platform or this_platform()
    if chosen not in lock.hashes:
        covered = ", ".join(lock.hashes)
        raise UsageError(f"--pylock: the lock is not for {chosen}; it covers {covered}")
    written = []
    for environment in lock.environments:
        text = pylock_text(
            environment.packages[chosen],
            environment.python,
            None if chosen == this_platform() else PLATFORMS[chosen],
        )
        _check(text, environment.packages[chosen], lock.hashes[chosen])
        path = folder / f"pylock.{_name(environment)}.toml"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise storage_error(error, path) from error
        written.append(path)
    return written


def _name(environment: LockedEnvironment) -> str:
    """Return a file's middle part, which may have no dots: the environment's first stage."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", environment.stages[0])


def _check(text: str, packages: Mapping[str, str], hashes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ToolchainError unless every locked file is offered with the hash it was locked with."""
    offered: dict[str, set[str]] = {}
    for package in tomllib.loads(text).get("packages", []):
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        found = {f"sha256:{file['hashes']['sha256']}" for file in files}
        offered[str(canonicalize_name(package["name"]))] = found
    for name, version in packages.items():
        pin = f"{name}=={version}"
        if not set(hashes[pin]) <= offered.get(name, set()):
            raise ToolchainError(
                f"{pin}: the index offers different files from the locked ones; use the index"
                " that the lock was made with, or lock again"
            )
