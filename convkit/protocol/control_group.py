"""What the kernel limits this process's control group to, and what it counts there."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

MEMBERSHIP = Path("/proc/self/cgroup")
ROOT = Path("/sys/fs/cgroup")


def control_files(
    controller: str, unified: str, legacy: str, membership: Path = MEMBERSHIP, root: Path = ROOT
) -> Iterator[Path]:
    """Yield the files of a controller for our group and the groups around it, innermost first.

    `unified` is the file's name in cgroup v2, `legacy` in v1. Inside a container, the group's own
    path may not be visible, and its root is the group. Files need not exist.
    """
    if sys.platform != "linux":
        return
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, unified
        elif controller in controllers.split(","):
            top, name = root / controller, legacy
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            yield folder / name
            if folder == top:
                break


def memory_limit(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the memory in bytes that the strictest group around us allows; None if unlimited.

    From `memory.max` (cgroup v2) or `memory.limit_in_bytes` (v1), where a huge number means no
    limit; the caller compares it with the machine's memory.
    """
    files = control_files("memory", "memory.max", "memory.limit_in_bytes", membership, root)
    limits = [int(text) for file in files if (text := _text(file)).isdigit()]
    return min(limits, default=None)


def memory_used(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the bytes that the innermost group around us uses and could not free at once; None if
    the kernel does not say.

    `memory.current` less the file pages that `memory.stat` calls inactive, as Kubernetes counts a
    container's working set.
    """
    files = control_files("memory", "memory.current", "memory.usage_in_bytes", membership, root)
    for file in files:
        if (text := _text(file)).isdigit():
            lines = _text(file.with_name("memory.stat")).splitlines()
            counts = dict(line.split(maxsplit=1) for line in lines if " " in line)
            idle = counts.get("inactive_file") or counts.get("total_inactive_file") or "0"
            return int(text) - int(idle)
    return None


def processor_limit(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int | None:
    """Return the cores that the strictest group around us allows, rounded up; None if unlimited.

    From `cpu.max` (cgroup v2: microseconds of processor time per period), or `cpu.cfs_quota_us` and
    `cpu.cfs_period_us` (v1).
    """
    limits = []
    for file in control_files("cpu", "cpu.max", "cpu.cfs_quota_us", membership, root):
        quota, _, period = _text(file).partition(" ")
        period = period or _text(file.with_name("cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            limits.append(max(1, math.ceil(int(quota) / int(period))))
    return min(limits, default=None)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
