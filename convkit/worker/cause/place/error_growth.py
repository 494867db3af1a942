"""How an error grows from its origin to the outputs."""

from collections.abc import Iterator, Sequence

from convkit.worker.cause.graphs.runnable_graph import Values
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.matching.value_matching import match_values
from convkit.worker.cause.recording.recorded_call import Recording

# The number of steps shown.
_STEPS = 6
# Of many values, as many are looked at: comparing all takes longer than finding the cause.
_LOOKED_AT = 120
# Values with less error are considered equal.
_SAME = 2e-6


def error_growth(
    recording: Recording, names: Sequence[str], found: Values, right: Values
) -> tuple[tuple[str, float], ...]:
    """Return the errors of a selection of a graph's values, with the place where the original
    computes each.

    `names` are the values from the origin on, in order; `found` are all values as the graph
    computes them. `right` are the graph's values with the original's value substituted at the
    origin: they match the original's, and so identify the counterparts of the graph's own.
    """
    some = [*names[:: max(1, len(names) // _LOOKED_AT)], *recording.outputs]
    matches = match_values(recording, {name: right[name] for name in some if name in right})
    steps: list[tuple[str, float]] = []
    for name in dict.fromkeys(some):
        if name not in matches or name not in found:
            continue
        match = matches[name]
        expected = match.layout.apply(recording.values[match.value].array)
        error = relative_error(found[name], expected)
        if error > _SAME:
            steps.append((recording.title(match.value), error))
    return tuple(_thinned(steps))


def _thinned(steps: Sequence[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Keep the last step for each title, and of many titles the first, the last, and evenly spaced
    ones in between.
    """
    last = list(dict(steps).items())
    if len(last) <= _STEPS:
        yield from last
        return
    yield from (last[round(place * (len(last) - 1) / (_STEPS - 1))] for place in range(_STEPS))
