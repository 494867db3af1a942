"""Patterns over module paths: `encoder.layer.*.attention` matches a module and everything below it.

Paths are dotted, as in torch's `named_modules`. `*` matches any characters within one segment, `**`
any number of whole segments, including none. Whole segments must match, case-sensitively. A dot at
the end excludes what lies below: `encoder.layer.*.attention.` matches only the module's own
operations, `.` the root's.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Collection, Iterable


class PatternError(ValueError):
    """A pattern over module paths is malformed; the message explains how."""


def matches(pattern: str, path: str) -> bool:
    """Return True if the pattern names the module `path` or one of its parents; raises
    PatternError.

    The root, whose path is empty, is matched only by `.` and `**`.
    """
    return _compiled(pattern).match(f"{path}." if path else "") is not None


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    itself_only = pattern.endswith(".")
    segments = pattern.removesuffix(".").split(".") if pattern != "." else []
    if not all(segments):
        raise PatternError(
            f"{pattern!r} has an empty segment; write a dotted module path such as encoder.layer.*"
        )
    parts = []
    for segment in segments:
        if segment == "**":
            parts.append(r"(?:[^.]*\.)*?")
        elif "**" in segment:
            raise PatternError(f"{pattern!r}: ** must be alone between dots")
        else:
            parts.append("[^.]*".join(re.escape(piece) for piece in segment.split("*")) + r"\.")
    # Paths are matched with a dot after their last segment, so that a match ends at a segment's
    # boundary.
    return re.compile("".join(parts) + (r"\Z" if itself_only else ""))


@dataclasses.dataclass(frozen=True)
class UnmatchedPattern:
    """A pattern that names no module, and the most similar module path."""

    pattern: str
    nearest: str | None


def unmatched_patterns(
    patterns: Iterable[str], paths: Collection[str]
) -> tuple[UnmatchedPattern, ...]:
    """Return the patterns that match none of the module paths; raises PatternError."""
    return tuple(
        UnmatchedPattern(pattern, nearest_path(pattern, sorted(paths)))
        for pattern in patterns
        if not any(matches(pattern, path) for path in paths)
    )


def nearest_path(pattern: str, paths: Iterable[str]) -> str | None:
    """Return the module path (or its form with `*` for numbers) most similar to a pattern that
    matched none.
    """
    known: dict[str, None] = {}
    for path in paths:
        segments = path.split(".")
        for end in range(1, len(segments) + 1):
            prefix = segments[:end]
            known[".".join(prefix)] = None
            if "*" in pattern:
                known[".".join("*" if segment.isdigit() else segment for segment in prefix)] = None
    found = difflib.get_close_matches(pattern, [path for path in known if path], n=1, cutoff=0.4)
    return found[0] if found else None
