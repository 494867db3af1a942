"""Durable file operations, and copies that share no inode with their original."""

import concurrent.futures
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

# ioctl(2), FICLONE: both files share their blocks until either is written to.
_FICLONE = 0x40049409
# Errors from filesystems that cannot fsync a folder.
_NO_FSYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})
# Files and folders flushed at once: a file system's journal commits for all that wait for it, so
# 70 small files, one after another, take as long as 70 commits.
_FLUSHED_TOGETHER = 16


def copy_file(source: Path, copy: Path) -> bool:
    """Make an independent copy of a file: a reflink if the filesystem supports it (Btrfs, XFS,
    bcachefs, NFS 4.2), otherwise a byte copy. Return True if it was a reflink.

    Never a hard link or symlink: an edit of one would change the other, and onnx (1.23) and
    onnxruntime (1.24) reject external data that is either.
    """
    with source.open("rb") as read, copy.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())
        except OSError:  # reflinks are not supported, or not between these two paths
            cloned = False
        else:
            cloned = True
    if not cloned:
        shutil.copyfile(source, copy)
    return cloned


def own_file(path: Path) -> None:
    """Replace a file that has hard links by a copy, so that it shares its content with no other."""
    if path.stat().st_nlink > 1:
        copy = path.with_name(path.name + ".copy")
        copy_file(path, copy)
        copy.replace(path)


def move_file(source: Path, place: Path) -> None:
    """Move a durable file into place, atomically; between file systems, its copy is made durable.
    The folder's entries are not flushed.
    """
    try:
        source.replace(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        staging = place.with_name(f".{place.name}.{os.getpid()}.part")
        staging.unlink(missing_ok=True)
        copy_file(source, staging)
        staging.chmod(0o444)
        sync_file(staging)
        staging.replace(place)
        source.unlink()


def sync_file(path: Path) -> None:
    """Flush a file's content to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, if the filesystem supports it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(descriptor)


def replace_durably(source: Path, place: Path) -> None:
    """Move a file or folder into place, so that after a power cut the place has either the old or
    the complete new one. The files in a folder must already be durable (see `sync_tree`).
    """
    if source.is_file():
        sync_file(source)
    source.replace(place)
    sync_folder(place.parent)


def write_whole(file: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file atomically: other processes see either the old content or all of the new. With
    `durable`, this also holds after a power cut. Raises OSError, and then leaves nothing behind.
    """
    staging = file.with_name(f".{file.name}.{os.getpid()}.{time.monotonic_ns()}.part")
    try:
        staging.write_bytes(content if isinstance(content, bytes) else content.encode())
        if durable:
            replace_durably(staging, file)
        else:
            staging.replace(file)
    finally:
        staging.unlink(missing_ok=True)


def sync_files(files: Iterable[Path]) -> None:
    """Flush several files' contents to disk, many at once."""
    with concurrent.futures.ThreadPoolExecutor(_FLUSHED_TOGETHER) as pool:
        for _ in pool.map(sync_file, files):
            pass


def sync_folders(folders: Iterable[Path]) -> None:
    """Flush several folders' entries to disk, as `sync_folder` does, many at once."""
    with concurrent.futures.ThreadPoolExecutor(_FLUSHED_TOGETHER) as pool:
        for _ in pool.map(sync_folder, folders):
            pass


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below a folder to disk."""
    found = [(Path(parent), names) for parent, _, names in os.walk(folder)]
    sync_files(parent / name for parent, names in found for name in names)
    sync_folders(parent for parent, _ in found)
