"""Facts of a machine, or of a process on it, that a model's code may ask for, and how each is found
out. What code learns of the platform otherwise (`platform.system`) is part of every key.

Workers record which were asked for, the host finds today's answers. Standard library only.
"""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path


def _processors() -> str:
    """Return how many processors this process may use; without affinities, how many there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    return str(len(affinity(0)) if affinity is not None else os.cpu_count())


def _mask() -> str:
    """Return the permissions that new files do not get; Linux says so without a change."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return "not known"
    return next((line.split()[1] for line in lines if line.startswith("Umask:")), "not known")


MACHINE_FACTS: Mapping[str, Callable[[], str]] = {
    "host name": socket.gethostname,
    "system": lambda: " ".join(os.uname())[-64:],
    "processors": lambda: str(os.cpu_count()),
    "usable processors": _processors,
    "user": lambda: str(os.getuid()),
    "umask": _mask,
}
# Modules' functions, which fact each tells, and the standard library's functions that ask it for
# something else: `platform.system` calls `uname`, and its answer is part of every key.
ASKED_BY = (
    ("socket", "gethostname", "host name", frozenset[str]()),
    ("platform", "node", "host name", frozenset[str]()),
    ("platform", "platform", "system", frozenset[str]()),
    ("platform", "uname", "system", frozenset({"system", "machine", "processor", "node"})),
    ("os", "uname", "system", frozenset({"uname"})),
    ("os", "cpu_count", "processors", frozenset[str]()),
    ("os", "process_cpu_count", "usable processors", frozenset[str]()),
    ("os", "sched_getaffinity", "usable processors", frozenset[str]()),
    ("os", "getuid", "user", frozenset({"expanduser"})),
    ("os", "geteuid", "user", frozenset({"expanduser"})),
    ("os", "umask", "umask", frozenset[str]()),
)
