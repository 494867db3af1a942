"""Fork servers that outlive a run (`convkit.worker.process.resident`): found, started, listed and
stopped.

Each listens on a socket in the home, in a folder that only its user can enter. The socket's name is
the digest of everything that a process passes on to those it starts, so a run finds only residents
that are like the servers it would start itself. Whatever goes wrong with one, the run starts its
own server: a resident saves time, and nothing depends on it.
"""

import contextlib
import dataclasses
import json
import os
import resource
import secrets
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convkit.host.home import Home
from convkit.host.processes.forked_processes import (
    IMPORT_SECONDS,
    LIMITS,
    Server,
    ServerRefusedError,
)
from convkit.host.processes.worker_start import BOOTSTRAP, command
from convkit.host.store.digests import digest_json
from convkit.protocol.errors import UsageError
from convkit.protocol.jobs.resident_orders import STALE, ResidentOrder, ResidentState
from convkit.protocol.json_codec import CodecError, decode, encode

# Minutes after which a resident that serves no run ends; 0: none is started.
MINUTES_VARIABLE = "CONVKIT_RESIDENT"
_MINUTES = 5.0
# Each holds what it has imported, 0.25 GB with torch.
_MOST = 4
_ANSWER_SECONDS = 2.0
_SUFFIX = ".socket"
# What /proc says of a process that those it starts inherit, but for its environment and limits.
_INHERITED_STATUS = ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")


@dataclasses.dataclass(frozen=True)
class Residents:
    """The residents of one home and user. They end after `minutes` without a run."""

    folder: Path
    minutes: float

    @classmethod
    def of(cls, home: Home, environment: Mapping[str, str]) -> "Residents | None":
        """Return a home's residents; None where there are to be none: on a CI system, as its
        variable CI says, if CONVKIT_RESIDENT is 0, and on any system but Linux.

        Raises UsageError if CONVKIT_RESIDENT is not a number of minutes.
        """
        given = environment.get(MINUTES_VARIABLE, "")
        on_ci = environment.get("CI", "").lower() not in ("", "0", "false")
        try:
            minutes = float(given) if given else 0.0 if on_ci else _MINUTES
        except ValueError:
            minutes = -1.0
        if not 0 <= minutes < float("inf"):
            raise UsageError(
                f"{MINUTES_VARIABLE}: {given!r} is not a number of minutes; write 5, or 0 for none"
            )
        return cls(_folder(home), minutes) if minutes and sys.platform == "linux" else None

    def server(
        self,
        python: Path,
        environment: Sequence[tuple[str, str]],
        tools: Sequence[str],
        closed: threading.Event,
    ) -> Server | None:
        """Return a server for this run, from a resident that is there or that this starts; None if
        there is none in the end, or once `closed` is set. Raises ServerRefusedError if a server
        with these tools must not fork.
        """
        name = _name(python, environment, tools)
        try:
            with _entered(self.folder) as folder:
                for _ in range(2):  # a second time if the first one ends because it is out of date
                    server, answer = self._connected(folder / (name + _SUFFIX), closed)
                    if server is not None or closed.is_set():
                        return server
                    if answer not in (b"", STALE):
                        raise ServerRefusedError(answer.decode(errors="replace"))
                    _make_room(folder)
                    self._start(folder, name, python, environment, tools)
                return self._connected(folder / (name + _SUFFIX), closed)[0]
        except (OSError, _StrangerError):
            return None

    def any(self) -> bool:
        """Say whether an earlier run has left a resident."""
        with contextlib.suppress(OSError, _StrangerError), _entered(self.folder) as folder:
            return bool(_sockets(folder))
        return False

    def has(
        self, python: Path, environment: Sequence[tuple[str, str]], tools: Sequence[str]
    ) -> bool:
        """Say whether there is a resident like this, if only one that is still importing."""
        with contextlib.suppress(OSError, _StrangerError), _entered(self.folder) as folder:
            connection = _connect(folder / (_name(python, environment, tools) + _SUFFIX))
            if connection is not None:
                connection.close()
                return True
        return False

    def start(
        self, python: Path, environment: Sequence[tuple[str, str]], tools: Sequence[str]
    ) -> None:
        """Start a resident for a later run, without waiting for its imports."""
        with contextlib.suppress(OSError, _StrangerError), _entered(self.folder) as folder:
            _make_room(folder)
            self._start(folder, _name(python, environment, tools), python, environment, tools)

    def _connected(self, place: Path, closed: threading.Event) -> tuple[Server | None, bytes]:
        connection = _connect(place)
        if connection is None:
            return None, b""
        return Server.of_resident(connection, closed, time.monotonic() + IMPORT_SECONDS)

    def _start(
        self,
        folder: Path,
        name: str,
        python: Path,
        environment: Sequence[tuple[str, str]],
        tools: Sequence[str],
    ) -> None:
        """Start a resident in place of another one with this name, if there is one. Runs that
        connect wait until it has imported its tools.
        """
        place, new = folder / (name + _SUFFIX), folder / secrets.token_hex(8)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(new))
            listener.listen()
            new.replace(place)
            arguments = (str(listener.fileno()), str(self.folder / place.name))
            seconds = str(60 * self.minutes)
            entry = command(python, BOOTSTRAP, "--resident", *arguments, seconds, *tools)
            starting = subprocess.Popen(
                entry,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=(listener.fileno(),),
                start_new_session=True,
                cwd="/",
            )
        starting.wait(IMPORT_SECONDS)  # it forks at once, and its child is an orphan


def _name(python: Path, environment: Sequence[tuple[str, str]], tools: Sequence[str]) -> str:
    """Return the name of a resident: its forks run the code of the convkit that started it, so
    another copy of convkit has its own.
    """
    like = [str(BOOTSTRAP), str(python), list(environment), list(tools), inherited()]
    return digest_json(like)[:32]


def residents_of(home: Home) -> list[ResidentState]:
    """Return the residents that answer. Those that are still importing do not."""
    with contextlib.suppress(OSError, _StrangerError), _entered(_folder(home)) as folder:
        return [state for _, state in _each(folder)]
    return []


def stop_residents(home: Home) -> int:
    """End all residents; runs that they serve go on. Returns how many there were."""
    with contextlib.suppress(OSError, _StrangerError), _entered(_folder(home)) as folder:
        return sum(_stop(place) for place in _sockets(folder))
    return 0


def inherited() -> dict[str, object]:
    """Return what a process that we start has from us, but for its environment, umask and limits,
    which orders name, and its current folder: what we may do, where we are, and how we run.
    """
    own = Path("/proc/self")
    lines = (own / "status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    top = Path("/").stat()
    return {
        "package": str(BOOTSTRAP),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"),
        "root": [top.st_dev, top.st_ino],
        "namespaces": {each.name: str(each.readlink()) for each in sorted((own / "ns").iterdir())},
        "groups": (own / "cgroup").read_text(encoding="utf-8"),
        "status": {name: status.get(name) for name in _INHERITED_STATUS},
        "processors": sorted(os.sched_getaffinity(0)),
        "nice": os.nice(0),
        "hard limits": [resource.getrlimit(number)[1] for number in LIMITS],
    }


class _StrangerError(Exception):
    """A folder or a socket is not ours."""


def _folder(home: Home) -> Path:
    return home.root / "residents"


@contextlib.contextmanager
def _entered(folder: Path) -> Iterator[Path]:
    """Provide a short path of a folder that only we can enter: a socket's has at most 107 bytes.

    Raises _StrangerError if somebody else could put a socket there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise _StrangerError(str(folder))
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _make_room(folder: Path) -> None:
    """Stop the residents that have served nobody for longest, so that another one may start."""
    there = list(_each(folder))
    idle = [(state.idle_seconds, place) for place, state in there if not state.runs]
    for _, place in sorted(idle, reverse=True)[: max(0, len(there) + 1 - _MOST)]:
        _stop(place)


def _sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{_SUFFIX}"))


def _connect(place: Path) -> socket.socket | None:
    """Return a connection to a process of ours; None if none listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.connect(str(place))
        if _peer_user(connection) == os.getuid():
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end: see SO_PEERCRED in unix(7)."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(found[4:8], sys.byteorder)


def _each(folder: Path) -> Iterator[tuple[Path, ResidentState]]:
    for place in _sockets(folder):
        if (state := _state(place)) is not None:
            yield place, state


def _state(place: Path) -> ResidentState | None:
    connection = _connect(place)
    if connection is None:
        return None
    with connection:
        try:
            connection.send(_message("show"))
            return decode(ResidentState, json.loads(connection.recv(64 * 1024)))
        except (OSError, ValueError, CodecError):
            return None


def _stop(place: Path) -> bool:
    """End a resident; return False if there was none. One that is still importing ends then."""
    connection = _connect(place)
    if connection is not None:
        with connection, contextlib.suppress(OSError):
            connection.send(_message("stop"))
            connection.recv(1)  # it has ended once the connection has
    place.unlink(missing_ok=True)
    return connection is not None


def _message(what: str) -> bytes:
    return json.dumps(encode(ResidentOrder(what))).encode()  # type: ignore[arg-type]
