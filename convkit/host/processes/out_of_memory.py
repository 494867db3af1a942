"""Asks the kernel whether it killed processes because memory ran out."""

from pathlib import Path

from convkit.protocol.control_group import MEMBERSHIP, ROOT, control_files


def memory_kills(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return how many processes of our control group the kernel's OOM killer has killed; None if
    the kernel does not report it.

    Workers belong to the control group of the process that starts them. cgroup v2 counts in
    `memory.events`, v1 in `memory.oom_control` (both documented by the kernel as `oom_kill`).
    """
    for file in control_files("memory", "memory.events", "memory.oom_control", membership, root):
        if (count := _count(file)) is not None:
            return count
    return None


def _count(file: Path) -> int | None:
    try:
        fields = dict(line.split() for line in file.read_text(encoding="utf-8").splitlines())
        return int(fields["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
