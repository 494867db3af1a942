"""Lists a home's environments, with their owners, and removes those that are not needed."""

import contextlib
import dataclasses
import os
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

from filelock import Timeout

from convkit.host.home import Home
from convkit.host.store.digests import SealBroken, read_sealed
from convkit.host.store.process_locks import file_lock
from convkit.host.store.stage_records import KeptRecord, LatestStage
from convkit.host.toolchain.environments.environment_builds import (
    STAGING,
    environments_folder,
    list_environments,
    lock_file,
)
from convkit.host.toolchain.environments.environment_use import alone, in_use
from convkit.host.toolchain.environments.installed_files import WrongFile
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.environments.shared_files import SHARED, collect, shared_folder
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.errors import storage_error
from convkit.protocol.sealed_imports import BYTECODE

_TOOL = "tools."


@dataclasses.dataclass(frozen=True)
class FinishedEnvironment:
    """A finished environment. `last_used` is in seconds since 1970, `resolutions` are the files
    that lead to it. `bytes` includes files that other environments share.

    `recipes` are those whose last runs used exactly these versions.
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
    """An item that can be or was removed (an environment, a build's leftover, or a resolution),
    with the bytes that this frees: files that another environment shares stay.
    """

    kind: Literal["environment", "leftover", "resolution"]
    path: Path
    bytes: int


def finished_environments(home: Path) -> tuple[FinishedEnvironment, ...]:
    """Return a home's environments, most recently used first."""
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
            FinishedEnvironment(
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
    """Return leftovers of killed builds and removals, and unused folders; ongoing builds are
    excluded.
    """
    root = environments_folder(home)
    # Earlier releases stored the runs of a recipe named `environments` here.
    standing = {folder for folder, _ in list_environments(home)} | set(Home(home).run_folders())
    folders = [path for path in sorted(root.iterdir()) if path.is_dir()] if root.is_dir() else []
    return tuple(
        folder
        for folder in folders
        if folder not in standing and folder.name != SHARED and _is_idle(folder)
    )


def prune(
    home: Path, *, unused_seconds: float, resolutions: bool = False, dry_run: bool = False
) -> tuple[Removal, ...]:
    """Remove leftovers, and environments unused for this long; return what was, or would be,
    removed.

    Anything in use or being built is kept. With `resolutions`, cached resolutions without an
    environment are removed too: their recipes then resolve to the newest compatible releases, as if
    for the first time. Raises StoreError.
    """
    try:
        removed = [*_prune_leftovers(home, dry_run=dry_run)]
        removed += _prune_environments(home, time.time() - unused_seconds, dry_run=dry_run)
        if resolutions:
            gone = {removal.path for removal in removed}
            removed += _prune_resolutions(home, gone, dry_run=dry_run)
        if not dry_run:
            collect(shared_folder(home))
    except OSError as error:
        raise storage_error(error, environments_folder(home)) from error
    return tuple(removed)


def remove_damage(folder: Path, wrong: Collection[WrongFile]) -> bool:
    """Remove damaged bytecode, which workers compile again, and the environment if any other file
    of it is wrong; return False if it is in use.
    """
    bytecode = {file for file in wrong if file.path.startswith(f"{BYTECODE}/")}
    for file in bytecode:
        (folder / file.path).unlink(missing_ok=True)
    return bytecode.issuperset(wrong) or _remove_environment(folder)


def _remove_environment(folder: Path) -> bool:
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
    # Rename first: if killed after this, the next build or prune removes what is left.
    aside = folder.with_name(f"{folder.name}.{time.time_ns()}{STAGING}")
    folder.replace(aside)
    shutil.rmtree(aside)


def folder_size(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder; files that vanish meanwhile count
    as 0.
    """
    return sum(status.st_size for status in _statuses(folder))


def disk_usage(folders: Iterable[Path]) -> int:
    """Return the total size in bytes of all files below some folders, shared ones counted once."""
    return sum(
        {
            (status.st_dev, status.st_ino): status.st_size
            for folder in folders
            for status in _statuses(folder)
        }.values()
    )


def _freed(folder: Path, gone: "Counter[tuple[int, int]]") -> int:
    """Return the bytes that removing an environment frees, and count its links in `gone`: those of
    environments that will have been removed before.
    """
    sizes, links = {}, {}
    for status in _statuses(folder):
        file = (status.st_dev, status.st_ino)
        gone[file] += 1
        sizes[file], links[file] = status.st_size, status.st_nlink
    # The last link to a shared file is that of the shared folder, which collects it.
    return sum(size for file, size in sizes.items() if links[file] - gone[file] <= 1)


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                yield os.lstat(os.path.join(parent, name))  # noqa: PTH118 - tens of thousands of files


def _prune_leftovers(home: Path, *, dry_run: bool) -> Iterator[Removal]:
    for folder in leftovers(home):
        removal = Removal("leftover", folder, folder_size(folder))
        if not dry_run:
            try:
                with file_lock(_lock_of(folder), timeout=0):
                    shutil.rmtree(folder)
            except Timeout:
                continue  # a build has started in the meantime
        yield removal


def _prune_environments(home: Path, before: float, *, dry_run: bool) -> Iterator[Removal]:
    gone: Counter[tuple[int, int]] = Counter()
    for folder, _ in list_environments(home):
        try:
            with file_lock(lock_file(folder), timeout=0), alone(folder / MARKER) as free:
                if not free or (folder / MARKER).stat().st_mtime > before:
                    continue
                # Removed ones are no longer among a file's links.
                freed = _freed(folder, gone if dry_run else Counter())
                removal = Removal("environment", folder, freed)
                if not dry_run:
                    _remove(folder)
        except (Timeout, FileNotFoundError):
            continue  # being rebuilt, or removed by another process
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
    """Return the cached resolutions with these versions; the files do not record the Python they
    are for.
    """
    return [file for file in (home / "resolutions").glob("*.txt") if _pins(file) == made_from.text]


def _pins(file: Path) -> str:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def _uses(home: Path) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Return, from the store's records, which recipes' latest stages used which tools."""
    store = home / "store"
    found = set()
    for latest in (store / "latest").glob("*/**/*.json"):
        try:
            key = read_sealed(latest, LatestStage).key
            parts = read_sealed(store / "stages" / f"{key}.json", KeptRecord).record.ingredients
        except (OSError, SealBroken):
            continue  # a damaged record; `convkit store verify` reports it
        tools = {
            name.removeprefix(_TOOL): value
            for name, value in parts.items()
            if name.startswith(_TOOL)
        }
        found.add((latest.relative_to(store / "latest").parts[0], frozenset(tools.items())))
    return found


def _lock_of(folder: Path) -> Path:
    """Return the lock of an environment's folder, finished or not."""
    return lock_file(folder.with_name(folder.name.partition(".")[0]))


def _is_idle(folder: Path) -> bool:
    try:
        with file_lock(_lock_of(folder), timeout=0):
            return True
    except Timeout:
        return False
