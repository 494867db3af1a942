"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most similar to `name`, or None if none is close."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=0.6)
    return by_lower_case[found[0]] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; perhaps you meant 'x'?` or an empty string."""
    found = nearest_name(name, known)
    return f"; perhaps you meant {found!r}?" if found else ""
