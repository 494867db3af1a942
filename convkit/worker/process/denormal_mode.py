"""Denormal numbers (nonzero, below 1.18e-38 in float32): kept, flushed to zero, or seen.

One rule holds for original, exported graph and simulation: they are kept, as IEEE 754 says. The
mode belongs to a thread, and anything that runs in it may change it: `torch.set_flush_denormal`, or
the first session of onnxruntime with `session.set_denormal_as_zero`. Threads inherit the mode of
the thread that starts them. So it is set again before each run.

Supported on Linux with glibc, on x86-64 and 64-bit ARM. Elsewhere nothing is changed or seen; the
system's own default keeps denormals.
"""

import ctypes
import dataclasses
import functools
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where C's `fenv_t` holds the thread's mode and flags.

    `size` is its size in 32-bit words; `mode` and `flags` are the words' indices, `flush` and
    `seen` the bits in them.
    """

    size: int
    mode: int
    flush: int
    flags: int
    seen: int


# x86-64: MXCSR follows 28 bytes of x87 state. Flush to zero is bit 15, denormals are zero bit 6;
# the flags are bit 1 (an operand was denormal) and bit 4 (a result was too small). ARM: FPCR has
# flush to zero in bit 24, FPSR has underflow in bit 3.
_LAYOUTS = {
    "x86_64": _Layout(8, 7, 1 << 15 | 1 << 6, 7, 1 << 1 | 1 << 4),
    "aarch64": _Layout(2, 0, 1 << 24, 1, 1 << 3),
}


@functools.cache
def _access() -> tuple[_Layout, ctypes.CDLL] | None:
    """Return the layout and C's mathematical library; None if this system is not supported."""
    layout = _LAYOUTS.get(platform.machine())
    if sys.platform != "linux" or layout is None or platform.libc_ver()[0] != "glibc":
        return None
    try:
        library = ctypes.CDLL("libm.so.6")
        assert library.fegetenv
        assert library.fesetenv
    except (OSError, AttributeError):
        return None
    return layout, library


def keep_denormals() -> None:
    """Have the calling thread keep denormal numbers from now on."""
    _set_mode(flush=False)


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Have the calling thread flush denormal numbers to zero, in operands and results."""
    _set_mode(flush=True)
    try:
        yield
    finally:
        _set_mode(flush=False)


@dataclasses.dataclass
class Seen:
    """Whether the calling thread computed with a denormal number, or lost one, in a block."""

    found: bool = False


@contextmanager
def watching() -> Iterator[Seen]:
    """See whether the calling thread meets a denormal number; other threads are not watched."""
    seen = Seen()
    if (access := _access()) is None:
        yield seen
        return
    layout, library = access
    words = _read(layout, library)
    words[layout.flags] &= ~layout.seen
    library.fesetenv(words)
    try:
        yield seen
    finally:
        seen.found = bool(_read(layout, library)[layout.flags] & layout.seen)


def _set_mode(*, flush: bool) -> None:
    if (access := _access()) is None:
        return
    layout, library = access
    words = _read(layout, library)
    before = words[layout.mode]
    words[layout.mode] = before | layout.flush if flush else before & ~layout.flush
    if words[layout.mode] != before:
        library.fesetenv(words)


def _read(layout: _Layout, library: ctypes.CDLL) -> "ctypes.Array[ctypes.c_uint32]":
    words = (ctypes.c_uint32 * layout.size)()
    library.fegetenv(words)
    return words
