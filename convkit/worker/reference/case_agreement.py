"""Measures how far a model's outputs differ between two cases that should agree."""

from collections.abc import Mapping

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import InvarianceCheck, Layout, TensorMetrics
from convkit.protocol.numpy_dtypes import dtype_name
from convkit.worker.cases.invariance_cases import ROW, real_elements, row_dimension
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.metrics.tensor_metrics import compare

Tensors = Mapping[str, np.ndarray]


def compare_cases(
    check: InvarianceCheck,
    contract: Contract,
    layout: Layout,
    feeds: Tensors,
    base: Tensors,
    other: Tensors,
) -> tuple[TensorMetrics, ...]:
    """Return how each output of `other` differs from that of `base`, over the elements that must
    agree.

    `feeds` are the base case's inputs; their masks mark the real positions. Outputs that are
    missing, or whose shapes share no elements, are skipped: the contract or parity checks report
    them. Sets of rows are compared only if the same inputs are run again. Metrics of part of an
    output treat its elements as a vector in row-major order (`worst_index` indexes it).
    """
    metrics = []
    if check == "determinism":
        metrics += [each for each in compare_outputs(contract, base, other) if each.rows]
    for spec in contract.outputs:
        if spec.name not in base or spec.name not in other or contract.data_axis_of(spec):
            continue
        pair = _shared(
            check,
            spec,
            contract,
            layout,
            feeds,
            np.asarray(base[spec.name]),
            np.asarray(other[spec.name]),
        )
        if pair is not None and pair[0].size:
            metrics.append(compare(spec.name, *pair))
    return tuple(metrics)


def _same_type(base: np.ndarray, other: np.ndarray) -> bool:
    """Compare types by name: numpy's types of texts have a length, too."""
    return dtype_name(base.dtype) == dtype_name(other.dtype)


def _shared(
    check: InvarianceCheck,
    spec: TensorSpec,
    contract: Contract,
    layout: Layout,
    feeds: Tensors,
    base: np.ndarray,
    other: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the elements of both that must agree, or None."""
    if base.ndim != len(spec.shape) or other.ndim != base.ndim or not _same_type(base, other):
        return None
    if check == "determinism":
        return (base, other) if base.shape == other.shape else None
    try:
        real = real_elements(spec, contract, layout, feeds, base.shape)
    except ValueError:  # not the declared shape
        return None
    if check == "batch":
        place = row_dimension(spec, layout.rows) if layout.rows is not None else None
        if place is None or base.shape[place] <= ROW or not other.shape[place]:
            return None
        real, base, other = (
            np.asarray(np.take(values, row, place))
            for values, row in ((real, ROW), (base, ROW), (other, 0))
        )
    else:
        other = other[tuple(map(slice, base.shape))]
    return (base[real], other[real]) if base.shape == other.shape else None
