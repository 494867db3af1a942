"""Records which files below a folder any code opens, using inotify(7) on Linux."""

import ctypes
import os
import struct
import threading
from pathlib import Path

_OPENED = 0x20  # IN_OPEN
_WRITTEN = 0x08  # IN_CLOSE_WRITE
_CLOSED_UNWRITTEN = 0x10  # IN_CLOSE_NOWRITE
_WATCHED = _OPENED | _WRITTEN | _CLOSED_UNWRITTEN
_IS_FOLDER = 0x40000000  # IN_ISDIR
_EVENT = struct.Struct("iIII")
_MOST_FOLDERS = 500
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class FolderWatch:
    """Records the files opened in a folder and its subfolders (at most 500) from now on, except
    those that were opened only to be written, such as the log of another program.

    Folders that contain the current directory are skipped: the stage's own output is there.
    """

    def __init__(self, folder: Path) -> None:
        self._folders: dict[int, Path] = {}
        self._opened: set[str] = set()
        self._read: set[str] = set()
        self._written: set[str] = set()
        self._descriptor = -1
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return  # not Linux
        if self._descriptor < 0:
            return  # this user has reached the system's limit
        for each in _below(folder.resolve()):
            number = library.inotify_add_watch(self._descriptor, os.fsencode(each), _WATCHED)
            if number >= 0:
                self._folders[number] = each
        self._ended = threading.Event()
        self._reading = threading.Thread(target=self._drain_always, daemon=True, name="watch")
        self._reading.start()

    def close(self) -> set[str]:
        """Stop watching and return the paths of the files that were opened to be read: those that
        were closed unwritten, and those that are still open.
        """
        if self._descriptor >= 0:
            self._ended.set()
            self._reading.join()
            self._drain()
            os.close(self._descriptor)
            self._descriptor = -1
        return self._read | (self._opened - self._written)

    def _drain_always(self) -> None:
        while not self._ended.wait(0.2):  # the kernel queues at most 16,384 events
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                events = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return
            place = 0
            while place < len(events):
                number, mask, _, length = _EVENT.unpack_from(events, place)
                name = events[place + _EVENT.size : place + _EVENT.size + length].rstrip(b"\0")
                place += _EVENT.size + length
                if name and not mask & _IS_FOLDER and number in self._folders:
                    path = str(self._folders[number] / os.fsdecode(name))
                    for event, found in (
                        (_OPENED, self._opened),
                        (_WRITTEN, self._written),
                        (_CLOSED_UNWRITTEN, self._read),
                    ):
                        if mask & event:
                            found.add(path)


def _below(folder: Path) -> list[Path]:
    found: list[Path] = []
    here = Path.cwd()
    for parent, folders, _ in os.walk(folder):
        if len(found) == _MOST_FOLDERS:
            break
        found.append(Path(parent))
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT
            and not name.startswith(".")
            and not here.is_relative_to(Path(parent) / name)
        ]
    return found
