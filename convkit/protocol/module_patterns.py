"""Patterns over module paths: `encoder.layer.*.attention` matches a module and everything below it.

Paths are dotted, as in torch's `named_modules`. `*` matches any characters within one segment, `**`
any number of whole segments, including none. Whole segments must match, case-sensitively. A dot at
the end excludes what lies below: `encoder.layer.*.attention.` matches only the module's own
operations, `.` the root's.

A last segment after a colon is a type of operation, in the words of the graph or program that the
runtime is given: `encoder.layer.*.attention.:Softmax`, `:Log` of the root.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Collection, Iterable


class PatternError(ValueError):
    """A pattern over module paths is malformed; the message explains how."""


_OPERATION = ":"


def operation_path(module: str, operation: str) -> str:
    """Return the path of a module's own operations of a type."""
    return f"{module}.{_OPERATION}{operation}" if module else f"{_OPERATION}{operation}"


def split_operation(path: str) -> tuple[str, str]:
    """Return the module of a path, and the type of its operations; empty if the path has none."""
    module, _, last = path.rpartition(".")
    return (module, last[1:]) if last.startswith(_OPERATION) else (path, "")


def matches(pattern: str, path: str) -> bool:
    """Return True if the pattern names `path`, the module whose operation it is, or one of its
    parents; raises PatternError.

    The root, whose path is empty, is matched only by `.` and `**`.
    """
    compiled = _compiled(pattern)
    module, operation = split_operation(path)
    return compiled.match(f"{module}." if module else "") is not None or (
        bool(operation) and compiled.match(f"{path}.") is not None
    )


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
            named = "[^.]*".join(re.escape(piece) for piece in segment.split("*"))
            parts.append(
                f"(?!{_OPERATION}){named}\\." if segment.startswith("*") else f"{named}\\."
            )
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
        segments = split_operation(path)[0].split(".")
        for end in range(1, len(segments) + 1):
            prefix = segments[:end]
            known[".".join(prefix)] = None
            if "*" in pattern:
                known[".".join("*" if segment.isdigit() else segment for segment in prefix)] = None
    found = difflib.get_close_matches(pattern, [path for path in known if path], n=1, cutoff=0.4)
    return found[0] if found else None
