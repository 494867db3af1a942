"""Paths that texts mention: of files that a program or a C extension may read, where nothing sees
what it reads. A mentioned folder means the files in it.

Standard library only.
"""

import os
import re
from collections.abc import Iterable

# `/models/w.bin`, `~/.cache/w.bin`, `$HOME/w.bin`, in code, commands and scripts.
_PATH = re.compile(r"(?:~|\$HOME|\$\{HOME\})?/[^\s'\"`:;,|&<>(){}\[\]*?$]+")
# A program's own text is no script of the user's, and a folder with more holds other things, too.
_MOST_BYTES, _MOST_FILES = 1 << 16, 200


def mentioned_files(texts: Iterable[str]) -> set[str]:
    """Return the absolute paths of the files that texts mention, and of those in folders that they
    mention.
    """
    found: set[str] = set()
    for text in texts:
        for word in _PATH.findall(text):
            at_home = re.sub(r"^\$\{?HOME\}?", "~", re.sub("^//+", "/", word))
            path = os.path.abspath(os.path.expanduser(at_home))  # noqa: PTH100, PTH111 - links stay
            found |= {path} if os.path.isfile(path) else files_in(path)  # noqa: PTH113 - as text
    return found


def files_in(folder: str) -> set[str]:
    """Return the paths of the files in a folder; none of one that holds very many, or is next to
    the root.
    """
    if os.path.dirname(folder) == "/":  # noqa: PTH120 - a path as text
        return set()
    try:
        with os.scandir(folder) as entries:
            paths = {entry.path for entry in entries if entry.is_file()}
    except OSError:
        return set()
    return paths if len(paths) <= _MOST_FILES else set()


def text_of(path: str) -> str:
    """Return the text of a file; an empty one if it is large, or no text."""
    try:
        if os.path.getsize(path) > _MOST_BYTES:  # noqa: PTH202 - a path as text
            return ""
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - as above
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""
