"""How much memory this process has used, and how much there is."""

import contextlib
import os
import resource
import sys
from pathlib import Path

from convkit.protocol.control_group import memory_limit


def peak_memory() -> int:
    """Return this process's peak memory use, in bytes."""
    status = Path("/proc/self/status")
    # On Linux, ru_maxrss includes the parent's peak, because exec keeps the maximum. The address
    # space's high-water mark does not.
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024  # bytes on macOS only (getrusage(2))


def data_size() -> int:
    """Return the bytes of this process's memory that RLIMIT_DATA counts (see getrlimit(2)). Linux
    only.
    """
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition("VmData:")[2].split()[0]) * 1024


def available_memory() -> int:
    """Return the bytes available without swapping, within what our control group allows (all memory
    if the system does not report it).
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError):  # not Linux
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    return min(found, memory_limit() or found)
