"""Values that meet: two inputs that are the same, and inputs that are what the model itself holds,
as a point that is one of its prototypes. Distances are zero there, and random numbers never have
any.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Sample
from convkit.protocol.numpy_dtypes import is_float
from convkit.worker.cases.values.sampled_values import sample_for


def alike(
    specs: Sequence[TensorSpec], samples: Mapping[str, Sample]
) -> Iterator[tuple[TensorSpec, ...]]:
    """Yield the groups of inputs that may have the same fractions: of one type and shape, drawn
    from one range.
    """
    groups: dict[tuple[object, ...], list[TensorSpec]] = {}
    for spec in filter(lambda each: is_float(each.dtype), specs):
        kind = (spec.dtype, spec.shape, sample_for(spec, samples))
        groups.setdefault(kind, []).append(spec)
    yield from (tuple(each) for each in groups.values() if len(each) > 1)


def held_rows(
    tables: Sequence[np.ndarray], spec: TensorSpec, low: float, high: float
) -> np.ndarray | None:
    """Return the rows of the model's tables that are as wide as the last axis of an input of
    fractions and lie within its range, (rows, width) in the tables' type; None without any.
    """
    width = spec.shape[-1] if spec.shape else 0
    if not isinstance(width, int) or width < 2:
        return None
    wide = [table for table in tables if table.shape[1] == width]
    rows = [table[((table >= low) & (table <= high)).all(axis=1)] for table in wide]
    found = np.concatenate(rows) if rows else np.empty((0, width))
    return found if len(found) else None
