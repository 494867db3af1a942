"""What a model's code may ask the machine besides reading files, and how such a lookup is named.

Workers record the names, the host finds today's answers. Standard library only.
"""

import fnmatch
import glob
import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from convkit.protocol.lookups.machine_facts import MACHINE_FACTS

# exists: what kind of thing a path is, if any · modified: also a file's size, and its or a folder's
# time · listing: a folder's names · matches: the paths that a pattern matches · link: where a link
# points · variable: the value of an environment variable · machine: a fact of `machine_facts`. Of
# the rest nothing but that it happened is known: the clock
# was read, the network was asked for a host, a C extension or a program ran, whose own lookups are
# not seen.
Lookup = Literal[
    "exists",
    "modified",
    "listing",
    "matches",
    "link",
    "variable",
    "machine",
    "clock",
    "network",
    "unseen",
]
UNANSWERED = ("clock", "network", "unseen")
# What is asked of these is no path.
WITHOUT_PATH = ("variable", "machine", "clock", "network")

NOTHING = "not there"
UNKNOWN = "not known"
# What Python and editors leave in any folder, and other people's backups.
_LEFTOVERS = ("__pycache__", "*.pyc", ".*.sw?", "*~")


def lookup_name(what: Lookup, subject: str) -> str:
    """Return a lookup's name: `exists:/models/best.pt`."""
    return f"{what}:{subject}"


def lookup_of(name: str) -> tuple[Lookup, str] | None:
    """Return a lookup's kind and subject; None for the name of a file."""
    what, separator, subject = name.partition(":")
    return (what, subject) if separator and what in get_args(Lookup) else None  # type: ignore[return-value]


def answer(
    what: Lookup, subject: str, variables: Mapping[str, str], ignored: Callable[[str], bool]
) -> str:
    """Return today's answer to a lookup of an absolute path, or of one of `variables`, in at most
    64 characters. Listings and matches leave out the paths that are `ignored`.
    """
    if what in UNANSWERED:
        return UNKNOWN
    if what == "variable":
        return _digest([variables[subject]]) if subject in variables else NOTHING
    if what == "machine":
        return MACHINE_FACTS[subject]() if subject in MACHINE_FACTS else UNKNOWN
    try:
        if what == "modified" and os.path.exists(subject):  # noqa: PTH110 - a path as text
            status = os.stat(subject)  # noqa: PTH116 - a path as text
            size = f", {status.st_size} bytes" if stat.S_ISREG(status.st_mode) else ""
            return f"{_kind(subject)}{size}, {status.st_mtime_ns}"
        if what in ("exists", "modified"):
            return _kind(subject)
        if what == "link":
            return _digest([os.readlink(subject)])  # noqa: PTH115 - a path as text
        if what == "listing":
            names = [os.path.join(subject, name) for name in os.listdir(subject)]  # noqa: PTH118, PTH208 - as above
        else:
            names = glob.glob(subject, recursive=True)  # noqa: PTH207 - a pattern with its folder
    except OSError:
        return NOTHING
    return _digest(
        sorted(
            os.path.relpath(name, _top(subject))
            for name in names
            if not (
                ignored(name)
                or any(fnmatch.fnmatch(os.path.basename(name), each) for each in _LEFTOVERS)  # noqa: PTH119 - as above
            )
        )
    )


def _top(subject: str) -> str:
    """Return the folder of a pattern's parts without wildcards."""
    return subject.partition("*")[0].rpartition("/")[0] or "/" if "*" in subject else subject


def _kind(path: str) -> str:
    link = "link to " if os.path.islink(path) else ""  # noqa: PTH114 - a path as text
    if os.path.isdir(path):  # noqa: PTH112 - as above
        return f"{link}folder"
    if not os.path.exists(path):  # noqa: PTH110 - as above
        return f"{link}{NOTHING}"
    # Of a file's permissions, this is the one that checkouts share.
    executable = os.stat(path).st_mode & stat.S_IXUSR  # noqa: PTH116 - as above
    return f"{link}{'program' if executable else 'file'}"


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()
