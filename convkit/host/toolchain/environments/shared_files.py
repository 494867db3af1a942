"""Files that environments share: each is kept once per user and hard-linked into every environment
that contains it.

    <cache>/files/<2 digits>/<SHA-256>[x]        x if executable; read-only
    <cache>/bytecode/<2 digits>/<SHA-256>.<tag>.pyc   what workers compiled from a source

The cache is `CONVKIT_CACHE`, or `convkit` in the user's cache folder; if that is not writable, or
on another filesystem than the home, it is in the home. Files come from uv's cache by reflink or
copy, never by hard link: an edit in any other tool's environment would change them. An edit of a
shared file reaches all environments that have it, and none runs it: seals notice it by the file's
ctime and digest, and no further environment gets it, because every file is digested when it is
linked: once per process, as long as nothing but this process's own links changes its numbers.

Linking and unlinking a file changes its ctime, so workers digest it once more and renew their
environment's seal (`convkit.protocol.sealed_imports`).
"""

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from convkit.host.store.durable_files import copy_file
from convkit.host.store.process_locks import HeldLock
from convkit.protocol.environment_seal import digest_entry, is_starting, numbers_of
from convkit.protocol.sealed_imports import BYTECODE

SHARED = ".shared"  # the folder's name in a home
_FILES = "files"
_LOCK = ".lock"
_EXECUTABLE = 0o111
_WRITABLE = 0o222
# Shared files with the digest in their names, as this process found them: their numbers by path.
# The environments of one run have most of their gigabytes in common.
_WHOLE: dict[str, str] = {}


def shared_folder(home: Path) -> Path:
    """Return the folder of the files that a home's environments share."""
    own = home / "environments" / SHARED
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "convkit"
    try:
        chosen = Path(os.environ.get("CONVKIT_CACHE") or user).expanduser().absolute()
    except RuntimeError:  # containers run as users without a home
        return own
    place = _existing(chosen)
    same = place.stat().st_dev == _existing(home).stat().st_dev
    return chosen if same and os.access(place, os.W_OK) else own


def share_files(environment: Path, digests: Mapping[str, str], shared: Path) -> frozenset[str]:
    """Replace an environment's files with links to the shared ones; add those that are missing.

    `digests` are the SHA-256 of files that no one edits, by path inside the environment. Returns
    the paths whose content has this digest. Every other file becomes its own copy. Raises
    OSError.
    """
    folder = shared / _FILES
    folder.mkdir(parents=True, exist_ok=True)
    (shared / BYTECODE).mkdir(exist_ok=True)
    (environment / BYTECODE).symlink_to(shared / BYTECODE)

    def settle(paths: Iterable[str]) -> list[str]:
        return [path for path in paths if _settle(f"{root}/{path}", digests.get(path), files)]

    root, files = str(environment), str(folder)
    paths = list(_regular_files(root))
    with HeldLock.shared(shared / _LOCK), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        parts = pool.map(settle, [paths[start::64] for start in range(64)])
        return frozenset(path for part in parts for path in part)


def sharable(path: str) -> bool:
    """Return True if a file inside an environment is the same in every one that contains it."""
    return path.startswith("lib/") and not is_starting(path)


def collect(shared: Path) -> int:
    """Remove files that no environment contains; return their size in bytes.

    Does nothing while an environment is being built, or if that cannot be determined.
    """
    lock = HeldLock.alone(shared / _LOCK)
    if lock is None:
        return 0
    with lock:
        freed = sum(_remove(Path(file)) for file in _unlinked(shared / _FILES))
        for bytecode in (shared / BYTECODE).glob("*/*"):
            source = shared / _FILES / bytecode.parent.name / bytecode.name.partition(".")[0]
            if not source.exists() and not source.with_name(f"{source.name}x").exists():
                freed += _remove(bytecode)
    return freed


def _unlinked(files: Path) -> list[str]:
    """Return the shared files that no environment contains."""
    found: list[str] = []
    for folder in filter(Path.is_dir, files.glob("*")):
        with os.scandir(folder) as entries:  # tens of thousands of files
            found += [entry.path for entry in entries if entry.stat().st_nlink == 1]
    return found


def _remove(file: Path) -> int:
    """Remove a file and return its size; 0 if another process removed it."""
    try:
        size = file.stat().st_size
        file.unlink()
    except FileNotFoundError:
        return 0
    return size


def _settle(file: str, digest: str | None, folder: str) -> bool:
    """Make a file a link to the shared one, or its own copy; return True if its digest is known.

    Paths are strings: pathlib costs more than the system calls, 20,000 times.
    """
    status = os.lstat(file)
    if digest is None or status.st_size == 0:  # a filesystem limits the links to one file
        if status.st_nlink > 1:
            _separate(Path(file))
        return False
    executable = "x" if status.st_mode & _EXECUTABLE else ""
    shared = f"{folder}/{digest[:2]}/{digest}{executable}"
    if not _is_whole(shared, digest) and not _add(Path(file), digest, Path(shared)):
        _separate(Path(file))
        return False
    os.unlink(file)  # noqa: PTH108 - see above
    try:
        _link(shared, file)
    except OSError:  # another filesystem, no links there, or too many to this file
        copy_file(Path(shared), Path(file))
        os.chmod(file, status.st_mode)  # noqa: PTH101 - see above
    return True


def _is_whole(shared: str, digest: str) -> bool:
    """Return True if the shared file exists undamaged; a damaged one is removed."""
    try:
        numbers = numbers_of(shared)
        if _WHOLE.get(shared) == numbers:
            return True
        if digest_entry(shared) == digest:
            _WHOLE[shared] = numbers
            return True
    except FileNotFoundError:
        return False
    with contextlib.suppress(FileNotFoundError):
        os.unlink(shared)  # noqa: PTH108 - as above
    return False


def _link(shared: str, file: str) -> None:
    """Link a shared file that was found whole, which changes its ctime; raises OSError."""
    before = numbers_of(shared)
    os.link(shared, file)
    if _WHOLE.get(shared) == before:
        _remember(shared, before)


def _remember(place: str, before: str) -> None:
    """Remember a file that was whole with other numbers, unless more than its ctime has changed."""
    now = numbers_of(place)
    if _without_ctime(now) == _without_ctime(before):
        _WHOLE[place] = now


def _without_ctime(numbers: str) -> list[str]:
    size, modified, _, inode = numbers.split()
    return [size, modified, inode]


def _add(file: Path, digest: str, shared: Path) -> bool:
    """Copy a file to its shared place; return False if its content is not what it should be."""
    shared.parent.mkdir(exist_ok=True)
    with _copied(file, shared.parent) as copy:
        before = numbers_of(str(copy))
        if digest_entry(str(copy)) != digest:
            return False
        copy.chmod(file.stat().st_mode & ~_WRITABLE)
        try:
            os.link(copy, shared)  # unlike a rename, it keeps what another build just added
        except FileExistsError:
            return _is_whole(str(shared), digest)
        except OSError:  # the filesystem has no links: the files are copied from here
            copy.replace(shared)
    _remember(str(shared), before)
    return True


def _separate(file: Path) -> None:
    """Replace a link to uv's cache with a copy."""
    with _copied(file, file.parent) as copy:
        copy.chmod(file.stat().st_mode)
        copy.replace(file)


@contextlib.contextmanager
def _copied(file: Path, folder: Path) -> Iterator[Path]:
    """Yield a temporary copy of a file, which is removed if it is still there afterwards."""
    copy = folder / f".{secrets.token_hex(8)}.part"
    try:
        copy_file(file, copy)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _regular_files(environment: str) -> Iterator[str]:
    """Yield the paths of an environment's files, without links, relative to it."""
    start, folders = len(environment) + 1, [environment]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    yield entry.path[start:]


def _existing(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
