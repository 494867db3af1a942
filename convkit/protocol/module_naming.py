"""Expresses sets of modules as human-readable patterns: `encoder.layer.*.attention`, not forty
paths.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from convkit.protocol.module_patterns import matches, split_operation


def general_path(path: str) -> str:
    """Return a module's path with its numbers replaced by `*`."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def in_words(patterns: Iterable[str]) -> str:
    """Format patterns for a message; one that ends with a dot excludes submodules."""
    return ", ".join(map(_in_words, patterns))


def _in_words(pattern: str) -> str:
    if pattern == ".":
        return "the root module's own operations (`.`)"
    module, operation = split_operation(pattern)
    if operation:
        return f"{operation} of {module or 'the root module'} (`{pattern}`)"
    if pattern.endswith("."):
        return f"the operations of {pattern[:-1]} itself (`{pattern}`)"
    return pattern


def module_at(path: str | None, source: str | None = None) -> str:
    """Return a module as a finding's text names it, with the line if that is known."""
    where = f"module {path}" if path else "the root module"
    return f"{where}, at {source}" if source else where


def without_covered(patterns: Iterable[str]) -> list[str]:
    """Return the patterns that are not below any of the others, without duplicates, in order."""
    distinct = list(dict.fromkeys(patterns))
    return [
        pattern for pattern in distinct if not any(_covers(other, pattern) for other in distinct)
    ]


def _covers(pattern: str, other: str) -> bool:
    if pattern == other or pattern.endswith("."):  # a dot at the end excludes everything below
        return False
    return matches(pattern, other.removesuffix("."))


def as_patterns(chosen: Iterable[str], modules: Sequence[str]) -> list[str]:
    """Return patterns that match at least the chosen modules' own nodes, given all existing
    modules.

    If at least half of the modules that differ only in numbers are chosen, the pattern matches all
    of them, unless that would be all there are. If everything below a module is chosen, the pattern
    names the module itself; otherwise it ends with a dot, which excludes what lies below.
    """
    wanted = set(chosen)
    alike = Counter(general_path(path) for path in modules)
    taken = Counter(general_path(path) for path in modules if path in wanted)
    # A number alone, as in a Sequential, says nothing about what a module is.
    whole = {
        name
        for name, count in taken.items()
        if 2 * count >= alike[name] and not set(name) <= {"*", "."}
    }
    covered = {path for path in modules if path in wanted or general_path(path) in whole}
    if covered == set(modules) and not covered <= wanted:
        whole, covered = set(), wanted & covered
    names = dict.fromkeys(
        general_path(path) if general_path(path) in whole else path
        for path in modules
        if path in wanted
    )
    # The root is `.`, whether or not there is anything below it.
    patterns = [f"{name}." if not name or _below(name, modules) else name for name in names]
    for parent in _with_parents(names):
        below = _below(parent, modules)
        own = [path for path in modules if path and matches(f"{parent}.", path)]
        together = [*own, *below]
        if (
            len(together) > 1
            and not _is_list(parent, below)
            and all(path in covered for path in together)
        ):
            patterns.append(parent)
    # A pattern has no spaces; a module's name may: `slice(1, None, None)`.
    return without_covered([re.sub(r"\*?\s+\*?", "*", pattern) for pattern in patterns])


def _below(pattern: str, modules: Iterable[str]) -> list[str]:
    """Return the modules below those that a pattern matches; everything is below the root."""
    if not pattern:
        return [path for path in modules if path]
    return [
        path
        for path in modules
        if path and matches(pattern, path) and not matches(f"{pattern}.", path)
    ]


def _is_list(parent: str, below: Sequence[str]) -> bool:
    """Return True if a module only contains numbered ones: these are named `blocks.*`, not by their
    list.
    """
    depth = parent.count(".") + 1
    return bool(below) and all(
        len(parts := path.split(".")) > depth and parts[depth].isdigit() for path in below
    )


def _with_parents(names: Iterable[str]) -> list[str]:
    """Return the patterns and their parent modules, deepest first."""
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".") if name else []
        for end in range(len(parts), 0, -1):
            found[".".join(parts[:end])] = None
    return sorted(found, key=lambda parent: -parent.count("."))
