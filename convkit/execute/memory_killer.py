"""Asks the kernel whether it killed processes because memory ran out."""

import sys
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def memory_kills(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int | None:
    """Return how many processes of our control group the kernel's OOM killer has killed; None if
    the kernel does not report it.

    Workers belong to the control group of the process that starts them. cgroup v2 counts in
    `memory.events`, v1 in `memory.oom_control` (both documented by the kernel as `oom_kill`).
    """
    if sys.platform != "linux":
        return None
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            files = [root / path.lstrip("/") / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            files = [
                root / "memory" / path.lstrip("/") / "memory.oom_control",
                root / "memory" / "memory.oom_control",
            ]
        else:
            continue
        for file in (
            files
        ):  # inside a container, the group's own path may not be visible, and its root is the group
            if (count := _count(file)) is not None:
                return count
    return None


def _count(file: Path) -> int | None:
    try:
        fields = dict(line.split() for line in file.read_text(encoding="utf-8").splitlines())
        return int(fields["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
