"""Values computed anew, each from the original's own values of all others: what is off there is
wrong there, and not inherited.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, Values
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import FLOOR

# An error up to this multiple of the effect of changing the inputs' last bit is attributed to
# arithmetic.
NOISE = 30.0
_LAST_BIT = 2.0**-24
# Bytes of values that are computed at once: a speech model's attention scores alone fill gigabytes.
_AT_ONCE = 1 << 29


def wrong_values(graph: Graph, feeds: Values, own: Values) -> list[tuple[str, float]]:
    """Return the values that a graph computes wrongly from the original's `own`, in its order, with
    their errors in parts of the rms. Raises PieceFailedError.
    """
    wrong, nudged = [], Nudged(own)
    for names in _portions(own):
        first = graph.run_replaced(names, feeds, own)
        errors = {name: relative_error(first[name], own[name]) for name in names}
        suspects = [name for name in names if errors[name] > FLOOR]
        second = graph.run_replaced(suspects, feeds, nudged)
        noise = {name: relative_error(second[name], first[name]) for name in suspects}
        wrong += [(name, errors[name]) for name in suspects if errors[name] > NOISE * noise[name]]
    return sorted(wrong, key=lambda each: graph.producers[each[0]])


def _portions(own: Values) -> Iterator[Sequence[str]]:
    """Yield the values' names, few enough at a time to be computed at once."""
    names: list[str] = []
    size = 0
    for name, values in own.items():
        if names and size + values.nbytes > _AT_ONCE:
            yield names
            names, size = [], 0
        names.append(name)
        size += values.nbytes
    if names:
        yield names


class Nudged(Mapping[str, np.ndarray]):
    """Values of which every float is changed in its last bit, made when they are asked for."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._seeds = {name: seed for seed, name in enumerate(values)}

    def __getitem__(self, name: str) -> np.ndarray:
        values = self._values[name]
        if values.dtype.kind != "f":
            return values
        random = np.random.default_rng(self._seeds[name])
        signs = random.integers(0, 2, values.shape, np.int8) * 2 - 1
        return values * (1 + _LAST_BIT * signs).astype(values.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
