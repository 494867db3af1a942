"""How much memory this process has used."""

import resource
import sys
from pathlib import Path


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
