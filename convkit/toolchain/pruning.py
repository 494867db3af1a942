"""The environments of a home: what they are, who they belong to, and which of them can go."""

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from filelock import Timeout

from convkit.errors import storage_error
from convkit.home import Home
from convkit.store.digests import SealBroken, read_sealed
from convkit.store.locks import file_lock
from convkit.store.records import KeptRecord, LatestStage
from convkit.toolchain.environments import (
    STAGING,
    environments_folder,
    list_environments,
    lock_file,
)
from convkit.toolchain.resolution import Resolution
from convkit.toolchain.sealing import MARKER
from convkit.toolchain.usage import alone, in_use

_TOOL = "tools."


@dataclasses.dataclass(frozen=True)
class Standing:
    """An environment that stands. `last_used` is in seconds since 1970, `resolutions` the files
    that lead to it.

    `recipes` are those whose last runs' stages had exactly these versions.
    """

    key: str
    folder: Path
    python: str
    packages: dict[str, str]
    bytes: int
    last_used: float
    in_use: bool
    resolutions: tuple[str, ...]
    recipes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Removal:
    """Something that can go, or has gone: an environment, what a build left, or a resolution; and
    its size.
    """

    kind: Literal["environment", "leftover", "resolution"]
    path: Path
    bytes: int


def standing_environments(home: Path) -> tuple[Standing, ...]:
    """Return the environments of a home, the last used first."""
    uses = _uses(home)
    found = []
    for folder, made_from in list_environments(home):
        marker = folder / MARKER
        files = tuple(sorted(file.name for file in _leading_to(made_from, home)))
        tools = frozenset({"python": made_from.python, **made_from.packages}.items())
        recipes = tuple(sorted(recipe for recipe, used in uses if used == tools))
        last_used = marker.stat().st_mtime
        size = folder_size(folder)
        python, packages = made_from.python, made_from.packages
        found.append(
            Standing(
                folder.name,
                folder,
                python,
                packages,
                size,
                last_used,
                in_use(marker),
                files,
                recipes,
            )
        )
    return tuple(sorted(found, key=lambda standing: -standing.last_used))


def leftovers(home: Path) -> tuple[Path, ...]:
    """Return what killed builds and removals left, and folders that serve nobody; not what is being
    built now.
    """
    root = environments_folder(home)
    # Earlier releases kept the runs of a recipe named `environments` here.
    standing = {folder for folder, _ in list_environments(home)} | set(Home(home).run_folders())
    folders = [path for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
    return tuple(folder for folder in folders if folder not in standing and _nobody_builds(folder))


def prune(
    home: Path, *, unused_seconds: float, resolutions: bool = False, dry_run: bool = False
) -> tuple[Removal, ...]:
    """Remove environments that nobody used for so long, and leftovers; return what went, or would
    go.

    What is in use, or being built, stays. With `resolutions`, also those remembered resolutions
    whose environment does not stand: their recipes then get the newest releases that fit, as if for
    the first time. Raises StoreError.
    """
    try:
        removed = [*_prune_leftovers(home, dry_run=dry_run)]
        removed += _prune_environments(home, time.time() - unused_seconds, dry_run=dry_run)
        if resolutions:
            gone = {removal.path for removal in removed}
            removed += _prune_resolutions(home, gone, dry_run=dry_run)
    except OSError as error:
        raise storage_error(error, environments_folder(home)) from error
    return tuple(removed)


def remove_environment(folder: Path) -> bool:
    """Remove one environment, damaged or not; return whether it is gone: not while it is used."""
    try:
        with file_lock(lock_file(folder), timeout=0), contextlib.ExitStack() as held:
            marker = folder / MARKER
            if marker.exists() and not held.enter_context(alone(marker)):
                return False
            _remove(folder)
    except (Timeout, FileNotFoundError):
        return not folder.exists()
    return True


def _remove(folder: Path) -> None:
    # Aside first: killed from here on, it leaves what the next build or prune clears.
    aside = folder.with_name(f"{folder.name}.{time.time_ns()}{STAGING}")
    folder.replace(aside)
    shutil.rmtree(aside)


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder; what vanishes meanwhile counts nothing."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - tens of thousands of files
            except FileNotFoundError:
                continue
    return total


def _prune_leftovers(home: Path, *, dry_run: bool) -> Iterator[Removal]:
    for folder in leftovers(home):
        removal = Removal("leftover", folder, folder_size(folder))
        if not dry_run:
            try:
                with file_lock(_lock_of(folder), timeout=0):
                    shutil.rmtree(folder)
            except Timeout:
                continue  # a build began meanwhile
        yield removal


def _prune_environments(home: Path, before: float, *, dry_run: bool) -> Iterator[Removal]:
    for folder, _ in list_environments(home):
        try:
            with file_lock(lock_file(folder), timeout=0), alone(folder / MARKER) as free:
                if not free or (folder / MARKER).stat().st_mtime > before:
                    continue
                removal = Removal("environment", folder, folder_size(folder))
                if not dry_run:
                    _remove(folder)
        except (Timeout, FileNotFoundError):
            continue  # it is being built anew, or another process removed it
        yield removal


def _prune_resolutions(home: Path, gone: set[Path], *, dry_run: bool) -> Iterator[Removal]:
    staying = [made_from for folder, made_from in list_environments(home) if folder not in gone]
    leading = {file for made_from in staying for file in _leading_to(made_from, home)}
    for file in sorted((home / "resolutions").glob("*.txt")):
        if file in leading:
            continue
        removal = Removal("resolution", file, file.stat().st_size)
        if not dry_run:
            file.unlink(missing_ok=True)
        yield removal


def _leading_to(made_from: Resolution, home: Path) -> list[Path]:
    """Return the remembered resolutions with these versions; the files do not say for which Python
    they were.
    """
    return [file for file in (home / "resolutions").glob("*.txt") if _pins(file) == made_from.text]


def _pins(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def _uses(home: Path) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Return which recipe's last stages had which tools, as the store remembers them."""
    store = home / "store"
    found = set()
    for latest in (store / "latest").glob("*/**/*.json"):
        try:
            key = read_sealed(latest, LatestStage).key
            parts = read_sealed(store / "stages" / f"{key}.json", KeptRecord).record.ingredients
        except (OSError, SealBroken):
            continue  # a damaged memory names nobody; `convkit store verify` tells of it
        tools = {
            name.removeprefix(_TOOL): value
            for name, value in parts.items()
            if name.startswith(_TOOL)
        }
        found.add((latest.relative_to(store / "latest").parts[0], frozenset(tools.items())))
    return found


def _lock_of(folder: Path) -> Path:
    """Return the lock of the environment that a folder is, or was to become."""
    return lock_file(folder.with_name(folder.name.partition(".")[0]))


def _nobody_builds(folder: Path) -> bool:
    try:
        with file_lock(_lock_of(folder), timeout=0):
            return True
    except Timeout:
        return False
