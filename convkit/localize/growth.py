"""How an error grows from the place where it begins to the outputs."""

from collections.abc import Iterator, Sequence

from convkit.localize.graph import Values
from convkit.localize.matching import match_values, relative_error
from convkit.localize.original import Recording

# Steps shown, and the error below which values are the same.
_STEPS = 6
_SAME = 2e-6


def error_growth(
    recording: Recording, names: Sequence[str], found: Values, right: Values
) -> tuple[tuple[str, float], ...]:
    """Return the error of some of a graph's values, with where the original computes each.

    `names` are the values from the place on, in order, `found` all values as the graph computes
    them. `right` are those with the original's value put at the place: they match the original's,
    and so say which of them the graph's own are to be compared with.
    """
    matches = match_values(recording, right)
    steps: list[tuple[str, float]] = []
    for name in names:
        if name not in matches or name not in found:
            continue
        match = matches[name]
        expected = match.layout.apply(recording.values[match.value].array)
        error = relative_error(found[name], expected)
        if error > _SAME:
            steps.append((recording.title(match.value), error))
    return tuple(_thinned(steps))


def _thinned(steps: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Keep the last step of each title, and of many titles some: the first, the last, those between
    at equal distances.
    """
    last = list(dict(steps).items())
    if len(last) <= _STEPS:
        yield from last
        return
    yield from (last[round(place * (len(last) - 1) / (_STEPS - 1))] for place in range(_STEPS))
