"""Starts a program and records the files that it and its children open and look for: run as
`python program_tracer.py LOG FILE NAME ARGUMENT...`.

A process forked off for it traces the program's system calls with paths (ptrace(2), stopped only at
those by a filter, seccomp(2)); the program itself keeps its process id, its parent and its files.
Where the system permits no tracing, the program runs untraced. What a filter costs a program: it
gains no privileges, as `sudo` would.

The log has records that end with a zero byte: a letter and a path. R read, U opened to be read and
written (with its size and change time before), W written, E not there, K a link, L listed.

Linux on x86-64 and arm64. Standard library only, and started without `site`.
"""

import contextlib
import ctypes
import os
import signal
import stat
import struct
import sys
from typing import NamedTuple


class _Call(NamedTuple):
    """Where a system call has its path: the argument that is the folder it is relative to, if it
    has one, and the path's.
    """

    kind: str
    folder: int | None
    path: int


_OPEN, _MADE, _RUN, _LOOK, _LINK, _MOVED = "open", "made", "run", "look", "link", "moved"
# By the kernel's name of an architecture (`AUDIT_ARCH_*`): its calls by their numbers.
_CALLS = {
    0xC000003E: {  # x86-64
        2: _Call(_OPEN, None, 0),
        257: _Call(_OPEN, 0, 1),
        437: _Call(_OPEN, 0, 1),
        85: _Call(_MADE, None, 0),
        59: _Call(_RUN, None, 0),
        322: _Call(_RUN, 0, 1),
        4: _Call(_LOOK, None, 0),
        6: _Call(_LOOK, None, 0),
        21: _Call(_LOOK, None, 0),
        262: _Call(_LOOK, 0, 1),
        269: _Call(_LOOK, 0, 1),
        332: _Call(_LOOK, 0, 1),
        439: _Call(_LOOK, 0, 1),
        89: _Call(_LINK, None, 0),
        267: _Call(_LINK, 0, 1),
        82: _Call(_MOVED, None, 1),
        264: _Call(_MOVED, 2, 3),
        316: _Call(_MOVED, 2, 3),
    },
    0xC00000B7: {  # arm64
        56: _Call(_OPEN, 0, 1),
        437: _Call(_OPEN, 0, 1),
        221: _Call(_RUN, None, 0),
        281: _Call(_RUN, 0, 1),
        48: _Call(_LOOK, 0, 1),
        79: _Call(_LOOK, 0, 1),
        291: _Call(_LOOK, 0, 1),
        439: _Call(_LOOK, 0, 1),
        78: _Call(_LINK, 0, 1),
        38: _Call(_MOVED, 2, 3),
        276: _Call(_MOVED, 2, 3),
    },
}
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OPENAT2 = 437  # whose flags are behind a pointer

# sys/ptrace.h, linux/seccomp.h, sys/prctl.h, linux/filter.h
_CONTINUE, _SEIZE, _LISTEN, _CALL_INFO = 7, 0x4206, 0x4208, 0x420E
_FORKS_AND_FILTER = 2 | 4 | 8 | 0x80  # fork, vfork, clone, seccomp
_EVENT_FILTER, _EVENT_STOP = 7, 128
_SET_NO_NEW_PRIVILEGES, _SET_FILTER, _SET_TRACER, _ANYONE = 38, 22, 0x59616D61, 2**64 - 1
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _TRACE = 0x7FFF0000, 0x7FF00000
_INSTRUCTION = struct.Struct("HBBI")
_INFO = struct.Struct("B3xIQQQ6QI4x")  # ptrace_syscall_info of a filter's stop
_ANY_CHILD = 0x40000000  # __WALL
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_RELATIVE_TO_CURRENT = -100  # AT_FDCWD
_LONGEST = 4096

_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, process: int, address: int = 0, data: object = 0) -> int:
    pointer = data if isinstance(data, ctypes.Array) else ctypes.c_void_p(data)  # type: ignore[arg-type]
    return int(_libc.ptrace(ctypes.c_long(request), process, ctypes.c_void_p(address), pointer))


def _run(log: str, file: str, words: list[str]) -> None:
    """Become the program, traced if the system permits it."""
    calls = _CALLS.get(_MACHINES.get(os.uname().machine, 0))
    if calls is not None and _start_tracer(log, calls):
        _filter(_MACHINES[os.uname().machine], calls)
    os.execv(file, words)  # noqa: S606 - the program that the user's code starts


def _start_tracer(log: str, calls: dict[int, _Call]) -> bool:
    """Start a process that traces this one; return whether it does."""
    reading, writing = os.pipe()
    _libc.prctl(_SET_TRACER, ctypes.c_ulong(_ANYONE), 0, 0, 0)
    traced, child = os.getpid(), os.fork()
    if child:
        os.close(writing)
        os.waitpid(child, 0)
        ready = os.read(reading, 1) == b"1"
        os.close(reading)
        return ready
    if os.fork():
        os._exit(0)  # the tracer is no child of the program, which may wait for its own
    with contextlib.suppress(BaseException):
        os.setsid()
        recorded = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        for number in (0, 1, 2):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        keep = sorted((recorded, writing))
        for first, last in zip((2, *keep), (*keep, 1 << 16), strict=True):
            os.closerange(first + 1, last)
        if _ptrace(_SEIZE, traced, 0, _FORKS_AND_FILTER) == 0:
            os.write(writing, b"1")
            os.close(writing)
            _Tracer(recorded, calls).trace()
    os._exit(0)


def _filter(architecture: int, calls: dict[int, _Call]) -> None:
    """Stop this process, from now on, at the calls that are traced."""
    code = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _ALLOW)]
    code.append((_LOAD, 0, 0, 0))
    for number in calls:
        code += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _TRACE)]
    code.append((_RETURN, 0, 0, _ALLOW))
    text = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*each) for each in code))
    program = struct.pack("H6xQ", len(code), ctypes.addressof(text))
    if _libc.prctl(_SET_FILTER, 2, program, 0, 0) != 0:
        _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _libc.prctl(_SET_FILTER, 2, program, 0, 0)


class _Tracer:
    """Lets the traced processes run from stop to stop until all have ended."""

    def __init__(self, log: int, calls: dict[int, _Call]) -> None:
        self._log, self._calls = log, calls
        self._known: set[bytes] = set()

    def trace(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, _ANY_CHILD)
            except ChildProcessError:
                return
            if not os.WIFSTOPPED(status):
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            if event == _EVENT_FILTER:
                with contextlib.suppress(Exception):  # it may have been killed meanwhile
                    self._stopped(process)
            if event == _EVENT_STOP and number in _STOPS:
                _ptrace(_LISTEN, process)
            else:
                _ptrace(_CONTINUE, process, 0, 0 if event else number)

    def _stopped(self, process: int) -> None:
        buffer = ctypes.create_string_buffer(_INFO.size)
        if _ptrace(_CALL_INFO, process, _INFO.size, buffer) <= 0:
            return
        _, _, _, _, number, *arguments, _ = _INFO.unpack(buffer.raw)
        call = self._calls.get(number)
        name = _text_at(process, arguments[call.path]) if call is not None else b""
        if call is None or not name:
            return
        path = os.path.normpath(os.path.join(_folder_of(process, call, arguments), name))  # noqa: PTH118 - bytes
        flags = 0
        if call.kind == _OPEN:
            flags = arguments[call.path + 1]
            if number == _OPENAT2:
                flags = int.from_bytes(_bytes_at(process, flags, 8), sys.byteorder)
        for record in _records(call.kind, path, flags):
            if record not in self._known:
                self._known.add(record)
                os.write(self._log, record + b"\0")


def _records(kind: str, path: bytes, flags: int) -> list[bytes]:
    try:
        status = os.stat(path)  # noqa: PTH116 - bytes
    except OSError:
        status = None
    if kind in (_MADE, _MOVED):
        return [b"W" + path]
    if status is None:
        made = kind == _OPEN and flags & os.O_CREAT
        return [b"W" + path] if made else [b"E" + path]
    if kind == _LINK:
        return [b"K" + path] if os.path.islink(path) else []  # noqa: PTH114 - bytes
    if kind == _LOOK:
        return []
    if stat.S_ISDIR(status.st_mode):
        return [b"L" + path] if kind == _OPEN else []
    if flags & (os.O_WRONLY | os.O_TRUNC):
        return [b"W" + path]
    if flags & os.O_RDWR:
        return [b"U%d %d " % (status.st_size, status.st_ctime_ns) + path]
    return [b"R" + path]


def _folder_of(process: int, call: _Call, arguments: list[int]) -> bytes:
    """Return the folder that a call's path is relative to."""
    number = _RELATIVE_TO_CURRENT
    if call.folder is not None:
        number = ctypes.c_int(arguments[call.folder] & 0xFFFFFFFF).value
    entry = "cwd" if number == _RELATIVE_TO_CURRENT else f"fd/{number}"
    return os.fsencode(os.readlink(f"/proc/{process}/{entry}"))  # noqa: PTH115 - as text


def _text_at(process: int, address: int) -> bytes:
    """Return a text of a process, up to its zero byte; pages end what can be read."""
    first = min(_LONGEST, 4096 - address % 4096)
    text = _bytes_at(process, address, first)
    if b"\0" not in text:
        text += _bytes_at(process, address + first, _LONGEST - first)
    return text.partition(b"\0")[0]


def _bytes_at(process: int, address: int, count: int) -> bytes:
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - started for each program
        memory.seek(address)
        return memory.read(count)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2], sys.argv[3:])
