"""Keeps the pages of memory-mapped files, such as a checkpoint's weights, from piling up in memory.

A page of a mapped file stays resident once it was read. The kernel drops it when memory runs short,
but until then it counts: for control groups, for `docker stats`, and for whoever decides how many
processes fit. A model that is used layer by layer needs only a few pages at a time.
"""

import ctypes
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

# Mapped pages that may stay resident. Large enough for the largest weight of most models, so that
# a weight is not dropped while it is used.
BUDGET_BYTES = 512 * 2**20
# Smaller mappings are not worth a system call.
_LEAST_BYTES = 2**20
# madvise(2): the pages are read from the file again when they are needed.
_DONTNEED = 4
_STATM, _SMAPS = Path("/proc/self/statm"), Path("/proc/self/smaps")


@dataclasses.dataclass(frozen=True)
class Mapping:
    """A range of addresses that maps a file. `resident` and `anonymous` are bytes; anonymous pages
    differ from the file, because the process has written to them.
    """

    start: int
    size: int
    permissions: str
    path: str
    resident: int
    anonymous: int

    @property
    def is_expendable(self) -> bool:
        """Whether dropping the pages loses nothing, since the file has the same bytes."""
        return (
            self.size >= _LEAST_BYTES
            and self.path.startswith("/")
            and not self.path.startswith("/dev/")  # a device's memory is no file
            and "x" not in self.permissions
            and ".so" not in self.path  # code's constants are used all the time
            and not self.anonymous
        )


class PageBudget:
    """Drops mapped pages whenever more than `budget` bytes of files are resident.

    Call `enforce` between uses of the weights, on the thread that uses them: a page that another
    thread writes to at that moment could be lost. Linux only; elsewhere, nothing is dropped.
    """

    def __init__(self, budget: int | None = None) -> None:
        self._budget = self._allowed = BUDGET_BYTES if budget is None else budget

    def enforce(self) -> int:
        """Drop the pages if there are too many; return the bytes dropped."""
        if resident_files() <= self._allowed:
            return 0
        dropped = release_pages()
        # What is left, such as libraries, cannot be dropped: it must not be looked through again
        # and again.
        self._allowed = resident_files() + self._budget
        return dropped


def resident_files() -> int:
    """Return the resident bytes of mapped files, including libraries; 0 if unknown."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[2]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 0


def release_pages() -> int:
    """Drop the resident pages of all mapped files that equal them; return the bytes dropped."""
    advise = _madvise()
    if advise is None:
        return 0
    return sum(
        each.resident
        for each in mappings()
        if each.is_expendable and each.resident and advise(each.start, each.size, _DONTNEED) == 0
    )


def mappings() -> Iterator[Mapping]:
    """Yield this process's mappings of files; none if the system does not report them."""
    try:
        lines = _SMAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    head: list[str] = []
    sizes: dict[str, int] = {}
    for line in lines:
        name, _, rest = line.partition(":")
        if name in ("Rss", "Anonymous"):
            sizes[name] = int(rest.split()[0]) * 1024
        elif "-" in line.split(" ", 1)[0]:  # addresses: the next mapping
            if len(head) == 6:  # the others map no file
                yield _mapping(head, sizes)
            head, sizes = line.split(maxsplit=5), {}
    if len(head) == 6:
        yield _mapping(head, sizes)


def _mapping(head: list[str], sizes: dict[str, int]) -> Mapping:
    start, end = (int(address, 16) for address in head[0].split("-"))
    # Without the figure, the pages may have been written to.
    anonymous = sizes.get("Anonymous", end - start)
    return Mapping(start, end - start, head[1], head[5], sizes.get("Rss", 0), anonymous)


@functools.cache
def _madvise() -> Callable[[int, int, int], int] | None:
    if not _SMAPS.exists():
        return None
    advise = ctypes.CDLL(None, use_errno=True).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    advise.restype = ctypes.c_int
    found: Callable[[int, int, int], int] = advise
    return found
