"""Core ML's part of `convkit doctor`."""

import platform
import sys

from convkit.protocol.runtimes.runtime_row import MachineFact


def checks() -> tuple[MachineFact, ...]:
    """Return whether this system runs Core ML."""
    if sys.platform == "darwin":
        return (MachineFact("Core ML", "ok", f"macOS {platform.mac_ver()[0]}"),)
    return (MachineFact("Core ML", "note", "its models run on macOS only"),)
