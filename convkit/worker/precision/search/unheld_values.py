"""What a low-precision type cannot hold of what a plan keeps in float32: why it may be kept."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.messages import LowPrecision, ModulePrecision
from convkit.protocol.module_naming import module_at

# At most so many are named.
MOST = 2

Feeds = Mapping[str, np.ndarray]


def unheld_of_modules(
    modules: Sequence[ModulePrecision], precision: LowPrecision, cases: Iterable[Feeds]
) -> list[str]:
    """Return the inputs, and the results of modules that are kept whole, that a precision's type
    cannot hold, each in words; two at most, and none if nothing is kept.
    """
    kept = [row for row in modules if row.float32 and not row.low]
    low = precision.default
    beyond = sorted(
        (row for row in kept if row.headroom is not None and row.headroom < 1),
        key=lambda row: row.headroom or 0.0,
    )
    inputs = unheld_inputs(cases, low) if kept else ()
    results = (f"{row.largest:.6g}, a result of {module_at(row.module)}" for row in beyond)
    return list(dict.fromkeys((*inputs, *results)))[:MOST]


def unheld_inputs(
    cases: Iterable[Feeds], low: DType, users: Container[str] | None = None
) -> Iterator[str]:
    """Yield the inputs with values that a type cannot hold, in words; of `users` only if given."""
    largest: dict[str, float] = {}
    for name, values in (pair for feeds in cases for pair in feeds.items()):
        if values.dtype == np.float32 and (users is None or name in users):
            reached = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
            largest[name] = max(reached, largest.get(name, 0.0))
    for name, reached in largest.items():
        if reached > LIMITS[low].largest:
            yield f"{reached:.6g}, a value of the input {name!r}"
