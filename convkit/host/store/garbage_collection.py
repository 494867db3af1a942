"""`convkit store gc`: removes from the store what nothing needs.

Everything is reached from stage records: a record names its artifact, and the artifact's list of
files names the objects. Whatever is removed goes in that order, the record first. So a process
killed at any point leaves only unreachable files, which the next collection removes, and never a
record whose artifact is incomplete.
"""

import contextlib
import dataclasses
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from convkit.host.store.digests import DigestCache, SealBroken, read_sealed
from convkit.host.store.process_locks import HeldLock
from convkit.host.store.stage_records import FileEntry, KeptRecord, LatestStage, SettledRun
from convkit.host.store.staging_folders import sweep_staging
from convkit.protocol.errors import StoreError, storage_error
from convkit.protocol.json_codec import CodecError, decode, parse_json

# What a store consists of, in the order in which it is removed.
Kind = Literal["views", "settled runs", "stage records", "lists of files", "objects"]


@dataclasses.dataclass(frozen=True)
class Needed:
    """What must stay: stages by key, and artifacts that a record names besides."""

    stages: frozenset[str]
    artifacts: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Freed:
    """How many files of a kind were removed, or would be, and their size in bytes."""

    kind: Kind
    files: int
    bytes: int


@contextlib.contextmanager
def exclusive_use(root: Path) -> Iterator[None]:
    """Keep everybody else from using the store. Raises StoreError if a process uses it, or if its
    filesystem has no locks, so that nobody can know.
    """
    try:
        use_lock(root).touch()
        alone = HeldLock.alone(use_lock(root))
    except OSError as error:
        raise storage_error(error, root) from error
    if alone is None:
        raise StoreError(
            f"{root}: another process uses the store (or its filesystem has no locks, so convkit"
            " cannot tell). Wait until it has finished, and try again"
        )
    with alone:
        yield


@contextlib.contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Keep the store's content from being collected; waits for a collection to finish.

    A store that cannot be written is not locked: nobody can collect it either.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        held = HeldLock.shared(use_lock(root))
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise storage_error(error, root) from error
        yield
        return
    with held:
        yield


def use_lock(root: Path) -> Path:
    """Return the lock that everybody who uses a store shares."""
    return root / "use.lock"


def collect(root: Path, needed: Needed, *, dry_run: bool = False) -> tuple[Freed, ...]:
    """Remove what is not needed from a store, and return what was freed, by kind.

    Also keeps the last record of each recipe's stages, which explains later changes. The caller
    holds `exclusive_use`.
    """
    garbage, digests = _garbage(root, needed), DigestCache(root / "digests")
    freed = []
    for kind, paths in garbage.items():
        sizes = [_size(path) for path in paths]
        freed.append(Freed(kind, len(paths), sum(sizes)))
        if not dry_run:
            for path in paths:
                _remove(path, digests)
    if not dry_run:
        sweep_staging(root / "staging")
    return tuple(freed)


def _garbage(root: Path, needed: Needed) -> dict[Kind, list[Path]]:
    """Return what is not needed, in the order in which it must be removed."""
    stages = needed.stages | set(_latest(root))
    artifacts = set(needed.artifacts)
    for key in stages:
        with contextlib.suppress(OSError, SealBroken):
            record = read_sealed(root / "stages" / f"{key}.json", KeptRecord).record
            artifacts.add(record.artifact)
    objects = {digest for each in artifacts for digest in _objects(root, each)}
    return {
        "views": sorted((root / "views").glob("*")),
        "settled runs": [
            path for path in sorted((root / "runs").glob("*.json")) if not _is_settled(root, path)
        ],
        "stage records": _others(root / "stages", "*.json", stages),
        "lists of files": _others(root / "artifacts", "*.json", artifacts),
        "objects": _others(root / "objects", "*/*", objects),
    }


def _others(folder: Path, pattern: str, needed: set[str] | frozenset[str]) -> list[Path]:
    found = sorted(folder.glob(pattern))
    return [path for path in found if path.name.partition(".")[0] not in needed]


def _latest(root: Path) -> Iterator[str]:
    for path in (root / "latest").rglob("*.json"):
        with contextlib.suppress(OSError, SealBroken):
            yield read_sealed(path, LatestStage).key


def _objects(root: Path, artifact: str) -> Iterator[str]:
    try:
        content = parse_json((root / "artifacts" / f"{artifact}.json").read_text(encoding="utf-8"))
        yield from (entry.sha256 for entry in decode(dict[str, FileEntry], content).values())
    except (OSError, ValueError, CodecError):
        return  # damaged or gone: a run makes it again


def _is_settled(root: Path, path: Path) -> bool:
    try:
        settled = read_sealed(path, SettledRun)
    except (OSError, SealBroken):
        return False
    return (root / settled.folder / "result.json").is_file()


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.lstat().st_size
    return sum(each.lstat().st_size for each in path.rglob("*") if each.is_file())


def _remove(path: Path, digests: DigestCache) -> None:
    try:
        if path.is_dir():
            for each in path.rglob("*"):
                digests.forget(each)
            shutil.rmtree(path)
        else:
            digests.forget(path)
            path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, path) from error
