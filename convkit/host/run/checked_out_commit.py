"""The commit that is checked out where a recipe lies, read from git's own files.

No git is started: it may be absent, and a repository can name programs that git would run.
"""

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST_BYTES = 4 << 20


def checked_out_commit(folder: Path) -> str:
    """Return the commit in hexadecimal; empty outside of a repository, or if it is not readable.

    Files may differ from the commit: what a run read is in its provenance, by digest.
    """
    try:
        start = folder.resolve()
        root = next((each for each in (start, *start.parents) if (each / ".git").exists()), None)
        return "" if root is None else _commit_of(root / ".git")
    except (OSError, ValueError):
        return ""


def _commit_of(git: Path) -> str:
    """Return the commit of a repository's folder, or of the file that a worktree has instead."""
    if git.is_file():
        _, _, where = _text(git).partition("gitdir:")
        git = (git.parent / where.strip()).resolve()
    head = _text(git / "HEAD")
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.removeprefix("ref:").strip()
    if ".." in Path(name).parts or name.startswith("/"):
        return ""
    shared = git / "commondir"
    common = (git / _text(shared)).resolve() if shared.is_file() else git
    for place in (git / name, common / name):
        if place.is_file():
            found = _text(place)
            return found if _COMMIT.fullmatch(found) else ""
    packed = common / "packed-refs"
    rows = _text(packed).splitlines() if packed.is_file() else []
    found = next((row.split()[0] for row in rows if row.split()[1:] == [name]), "")
    return found if _COMMIT.fullmatch(found) else ""


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "strict").strip()
