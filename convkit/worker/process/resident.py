"""A fork server that outlives the run that started it, so that the next run imports nothing.

It runs no stage and no user's code: it imports tools and waits. Each run that connects gets a fork
of it as its own fork server, which ends with the run, so nothing passes from one run to the next.
It ends after minutes without a run, when the machine runs short of memory, once another process has
taken its place, and as soon as a file that it has imported has changed.
"""

import contextlib
import dataclasses
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from convkit.protocol.control_group import memory_limit, memory_used
from convkit.protocol.environment_seal import FILE_NAME as SEAL
from convkit.protocol.jobs.fork_orders import LoadOrder
from convkit.protocol.jobs.resident_orders import STALE, ResidentOrder, ResidentState
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.worker.process.child_reaper import ChildExits, reap
from convkit.worker.process.fork_server import ForkedWorker, become_server, prepare

_LONGEST_ORDER = 64 * 1024
_LOOK_SECONDS = 5.0
# A connection that says nothing for this long is closed: others wait meanwhile.
_PATIENCE_SECONDS = 1.0
# With less of the machine's memory available, a resident that serves nobody ends.
_LEAST_AVAILABLE = 0.1
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: see SO_PEERCRED in unix(7)


def stay(
    descriptor: int, place: Path, idle_seconds: float, modules: Sequence[str]
) -> ForkedWorker | None:
    """Import `modules` and serve the runs that connect to a listening socket, which is at `place`.

    Returns as `await_order` does: a `ForkedWorker` in each worker, None in the resident and in the
    runs' servers when they end.
    """
    if os.fork():  # an orphan: nobody waits for it, and it is no part of the run that started it
        os._exit(0)
    os.setsid()
    began = time.time()
    with socket.socket(fileno=descriptor) as listener:
        with _opened_by_python() as opened:
            refusal = prepare(modules)
        files = ImportedFiles.since(began, opened)
        return _Resident(listener, place, idle_seconds, modules, files, refusal).run()


@contextlib.contextmanager
def _opened_by_python() -> Iterator[set[str]]:
    """Provide the paths of the files that Python code opens in the block: settings, for example,
    which what is imported depends on.
    """
    opened: set[str] = set()
    active = True

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if active and event == "open" and isinstance(arguments[0], str):
            opened.add(os.path.abspath(arguments[0]))  # noqa: PTH100 - like open(): keeps links

    sys.addaudithook(hear)
    yield opened
    active = False


@dataclasses.dataclass(frozen=True)
class ImportedFiles:
    """The files that this process has read to import its tools, as they were then."""

    states: dict[str, tuple[int, ...] | None]
    began: float
    settled: bool

    @classmethod
    def since(cls, began: float, opened: Iterable[str] = ()) -> "ImportedFiles":
        """Return them, and those `opened` that are still there. `settled` is False if one that was
        imported has changed since `began`, in seconds since 1970: it is unknown which version was.
        """
        imported = {path: _state(path) for path in _imported()}
        changed = (state is None or state[-1] >= began * 1e9 for state in imported.values())
        read = {path: _state(path) for path in opened if _real(path) and not path.endswith(".pyc")}
        kept = {path: state for path, state in read.items() if _was_read(path, state, began)}
        around = {
            path: _state(path)
            for path in (*_folders(), str(Path(sys.executable).parent.parent / SEAL))
        }
        return cls({**kept, **around, **imported}, began, not any(changed))

    def changed(self) -> bool:
        """Say whether one of them, or the packages that are installed, differ from what they
        were.
        """
        return not self.settled or any(_state(path) != was for path, was in self.states.items())


def _imported() -> set[str]:
    modules = (getattr(module, "__dict__", {}) for module in list(sys.modules.values()))
    files = {str(file) for each in modules if (file := each.get("__file__"))}
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    paths = (line.split(maxsplit=5)[5:] for line in mapped)
    return files | {path[0] for path in paths if path and _is_library(path[0])}


def _is_library(path: str) -> bool:
    return path.startswith("/") and ".so" in path.rpartition("/")[2] and _real(path)


def _real(path: str) -> bool:
    """Return False for devices, and for what is another thing in every process."""
    return not path.startswith(("/dev/", "/proc/", "/sys/", "/memfd:", "/SYSV"))


def _was_read(path: str, state: tuple[int, ...] | None, began: float) -> bool:
    """Return False for folders, and for files that the imports themselves made or removed."""
    return state is not None and state[-1] < began * 1e9 and not Path(path).is_dir()


def _folders() -> list[str]:
    """Return the folders that modules are imported from: what is new there may be found, too."""
    return [path for path in sys.path if path and Path(path).is_dir()]


def _may_be_imported(name: str) -> bool:
    """Say whether a name in such a folder is a module's or a package's. Others come and go: such a
    folder may be one that the user works in.
    """
    return name != "__pycache__" and (
        "." not in name or name.endswith((".py", ".so", ".pth", ".egg-link", "-info"))
    )


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes with a file's content, the change time last, or with the modules in a
    folder; None if it is gone.
    """
    try:
        if Path(path).is_dir():
            return (hash(tuple(sorted(filter(_may_be_imported, os.listdir(path))))),)  # noqa: PTH208 - names
        found = os.stat(path)  # noqa: PTH116 - thousands of them, before each run
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _inode(place: Path) -> tuple[int, ...] | None:
    try:
        found = place.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


class _Resident:
    """The loop that forks a server for each run."""

    def __init__(
        self,
        listener: socket.socket,
        place: Path,
        idle_seconds: float,
        modules: Sequence[str],
        files: ImportedFiles,
        refusal: str | None,
    ) -> None:
        self._listener, self._place, self._files = listener, place, files
        self._idle_seconds, self._modules, self._refusal = idle_seconds, tuple(modules), refusal
        self._servers: dict[int, int] = {}  # process id -> the descriptor that reports its exit
        self._served = time.monotonic()
        self._own = _inode(place)
        self._exits = ChildExits()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._exits, selectors.EVENT_READ)

    def run(self) -> ForkedWorker | None:
        while True:
            seconds = min(_LOOK_SECONDS, self._idle_seconds)
            ready = {key.fileobj for key, _ in self._selector.select(seconds)}
            if self._exits in ready:
                self._exits.clear()
                reap(self._servers)
            if self._servers:
                self._served = time.monotonic()
            if self._listener in ready:
                connection, _ = self._listener.accept()
                order, descriptors = order_of(connection)
                if order is not None and descriptors and self._may_serve(order, connection):
                    status = descriptors[0]
                    if self._fork(status):
                        return become_server(connection.detach(), status, _load_order(order))
                elif order is not None and not self._stays(order, connection):
                    self._end()
                    connection.close()  # whoever asked awaits it
                    return None
                connection.close()
                _close(descriptors)
            elif self._is_over():
                self._end()
                return None

    def _may_serve(self, order: ResidentOrder, connection: socket.socket) -> bool:
        """Say whether a run gets a server; if not, tell it why."""
        if order.what != "serve":
            return False
        reason = self._refusal.encode() if self._refusal is not None else STALE
        if self._refusal is None and not self._files.changed():
            return True
        with contextlib.suppress(OSError):  # the run is gone
            connection.send(reason[:_LONGEST_ORDER])
        return False

    def _stays(self, order: ResidentOrder, connection: socket.socket) -> bool:
        """Answer what needs no server; return False if this process is to end."""
        if order.what == "show":
            with contextlib.suppress(OSError):  # whoever asked is gone
                connection.send(json.dumps(encode(self._shown())).encode())
        return order.what == "show"

    def _shown(self) -> ResidentState:
        idle = 0.0 if self._servers else time.monotonic() - self._served
        return ResidentState(
            os.getpid(), sys.executable, self._modules, self._files.began, idle, len(self._servers)
        )

    def _fork(self, status: int) -> bool:
        """Fork; return True in the new process."""
        try:
            pid = os.fork()
        except OSError:  # out of memory or processes: the end of the connection reports it
            return False
        if pid:
            self._servers[pid] = os.dup(status)
            self._served = time.monotonic()
            return False
        self._selector.close()
        self._exits.leave()
        self._listener.close()
        _close([*self._servers.values()])
        return True

    def _is_over(self) -> bool:
        if _inode(self._place) != self._own:
            return (
                True  # nobody can connect any more; servers that run need nothing of this process
            )
        if self._servers:
            return False
        return time.monotonic() - self._served > self._idle_seconds or is_scarce()

    def _end(self) -> None:
        """Leave no socket behind, unless it is another's."""
        if _inode(self._place) == self._own:
            self._place.unlink(missing_ok=True)


def order_of(connection: socket.socket) -> tuple[ResidentOrder | None, list[int]]:
    """Return what a process asks, with its descriptor; None for another user's, and for nothing."""
    if peer_user(connection) != os.getuid():
        return None, []
    connection.settimeout(_PATIENCE_SECONDS)
    descriptors: list[int] = []
    try:
        message, descriptors, _, _ = socket.recv_fds(connection, _LONGEST_ORDER, 1)
        order = decode(ResidentOrder, json.loads(message)) if message else None
    except (OSError, ValueError, CodecError):
        order = None
    connection.settimeout(None)
    return order, list(descriptors)


def _load_order(order: ResidentOrder) -> LoadOrder:
    """Return the place and limits of a run's server, which loads nothing by itself."""
    return LoadOrder("", None, "/", order.umask, order.limits)


def _close(descriptors: Sequence[int]) -> None:
    for each in descriptors:
        with contextlib.suppress(OSError):
            os.close(each)


def is_scarce() -> bool:
    """Return True if the machine, or the control group, has little memory left."""
    limit, used = memory_limit(), memory_used()
    if limit and used and limit - used < _LEAST_AVAILABLE * limit:
        return True
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    numbers = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return numbers["MemAvailable"] < _LEAST_AVAILABLE * numbers["MemTotal"]
