"""Core AI's part of `convkit doctor`."""

import platform
import sys

from convkit.protocol.runtimes.runtime_row import MachineFact

# Of the wheels of coreai-core 1.0.0b3: manylinux_2_34, and macOS on Apple silicon.
_GLIBC = (2, 34)


def checks() -> tuple[MachineFact, ...]:
    """Return whether this system runs Core AI."""
    if sys.platform == "darwin":
        return (MachineFact("Core AI", "ok", f"macOS {platform.mac_ver()[0]}"),)
    name, version = platform.libc_ver()
    numbers = tuple(int(each) for each in version.split(".")[:2] if each.isdigit())
    if sys.platform == "linux" and name == "glibc" and numbers >= _GLIBC:
        return (MachineFact("Core AI", "ok", "its models run on this CPU"),)
    wanted = ".".join(map(str, _GLIBC))
    return (MachineFact("Core AI", "note", f"it needs Linux with glibc {wanted}, or macOS"),)
