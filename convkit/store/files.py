"""Durable file operations, and copies that share no inode with their original."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

# ioctl(2), FICLONE: both files share their blocks until either is written to.
_FICLONE = 0x40049409
# Errors from filesystems that cannot fsync a folder.
_NO_FSYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})


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


def sync_tree(folder: Path) -> None:
    """Flush every file and folder below a folder to disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(parent) / name)
        sync_folder(Path(parent))
