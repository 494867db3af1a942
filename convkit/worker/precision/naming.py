"""Sets of modules as patterns that a person would write: `encoder.layer.*.attention`, not forty paths."""

from collections import Counter
from collections.abc import Iterable, Sequence

from convkit.worker.precision.patterns import matches


def general_path(path: str) -> str:
    """Return a module's path with `*` in place of its numbers."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def without_covered(patterns: Iterable[str]) -> list[str]:
    """Return the patterns that lie below none of the others, each once, in order."""
    distinct = list(dict.fromkeys(patterns))
    return [p for p in distinct if not any(other != p and matches(other, p) for other in distinct)]


def as_patterns(chosen: Iterable[str], modules: Sequence[str]) -> list[str]:
    """Return patterns that name at least the chosen modules, out of all that there are (the root cannot be named).

    Where half or more of the modules that differ in numbers only are chosen, all of them are named. Where everything
    below a module is named, the module itself is.
    """
    wanted = {path for path in chosen if path}
    alike = Counter(general_path(path) for path in modules)
    taken = Counter(general_path(path) for path in modules if path in wanted)
    names = {
        path: general_path(path) if 2 * taken[general_path(path)] >= alike[general_path(path)] else path
        for path in modules
        if path in wanted
    }
    covered = {path for path in modules if path in wanted or 2 * taken[general_path(path)] >= alike[general_path(path)]}
    patterns = list(dict.fromkeys(names[path] for path in modules if path in names))
    for parent in _parents(patterns):
        below = [path for path in modules if path and matches(parent, path)]
        if len(below) > 1 and not _is_list(parent, below) and all(path in covered for path in below):
            patterns.append(parent)
    return without_covered(patterns)


def _is_list(parent: str, below: Iterable[str]) -> bool:
    """Say whether a module only holds numbered ones: they are named as `blocks.*`, not by the list they are in."""
    depth = parent.count(".") + 1
    return all(len(parts := path.split(".")) > depth and parts[depth].isdigit() for path in below)


def _parents(patterns: Iterable[str]) -> list[str]:
    """Return the modules above the patterns, the deepest first."""
    found: dict[str, None] = {}
    for pattern in patterns:
        parts = pattern.split(".")
        for end in range(len(parts) - 1, 0, -1):
            found[".".join(parts[:end])] = None
    return sorted(found, key=lambda parent: -parent.count("."))
