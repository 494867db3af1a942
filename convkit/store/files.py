"""Files that survive a power cut, and copies that share no inode with their original."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

# ioctl(2), FICLONE: the two files share their blocks until one of them is written to.
_FICLONE = 0x40049409
# What a filesystem says that cannot fsync a folder.
_NO_FSYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES})


def copy_file(source: Path, copy: Path) -> bool:
    """Make an independent copy of a file's bytes: a reflink where the filesystem has them (Btrfs,
    XFS, bcachefs, NFS 4.2), else the bytes themselves. Return whether it was a reflink.

    Never a hard link or a symlink: an edit of one would change the other, and onnx (1.23) and
    onnxruntime (1.24) refuse external data that is either.
    """
    with source.open("rb") as read, copy.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), _FICLONE, read.fileno())
        except OSError:  # no reflinks here, or not between these two places
            cloned = False
        else:
            cloned = True
    if not cloned:
        shutil.copyfile(source, copy)
    return cloned


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the filesystem can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(descriptor)


def replace_durably(source: Path, place: Path) -> None:
    """Move a file or folder into place so that, after a power cut, the place holds the old one or
    the whole new one. The files in a folder must be durable already (see `sync_tree`).
    """
    if source.is_file():
        sync_file(source)
    source.replace(place)
    sync_folder(place.parent)


def sync_tree(folder: Path) -> None:
    """Make every file and name below a folder durable."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(parent) / name)
        sync_folder(Path(parent))
