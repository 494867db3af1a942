"""How far each node of a graph is off, beside expected values."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, Values
from convkit.worker.metrics.magnitudes import rms

# Values beyond this are masks' "minus infinity".
_HUGE = 1e18


@dataclasses.dataclass(frozen=True)
class NodeError:
    """The largest error of a node's results, in parts of the expected values' root mean square.

    `error` is None if there is nothing to compare with, `lost` as in `ViewedNode`. `largest` is the
    largest expected magnitude.
    """

    error: float | None
    lost: bool
    largest: float | None


def node_error(names: Iterable[str], found: Values, expected: Values) -> NodeError:
    """Return the error of the node that computes these values; the worst of several."""
    errors, lost, largest = [], False, []
    for name in names:
        if name not in expected or expected[name].dtype.kind != "f":
            continue
        wanted = expected[name].astype(np.float64)
        usual = np.isfinite(wanted) & (np.abs(wanted) < _HUGE)
        if not usual.any():
            continue
        largest.append(float(np.abs(wanted[usual]).max()))
        if name not in found or found[name].shape != wanted.shape:
            continue
        own = found[name].astype(np.float64)
        lost |= not np.isfinite(own[usual]).all()
        both = usual & np.isfinite(own)
        size = rms(wanted[usual])
        worst = float(np.abs(own[both] - wanted[both]).max()) if both.any() else 0.0
        if size > 0 or worst == 0:  # zeros have no size to compare an error with
            errors.append(worst / size if worst else 0.0)
    return NodeError(max(errors, default=None), lost, max(largest, default=None))


def as_quantized(graph: Graph, found: Values) -> dict[str, np.ndarray]:
    """Return a graph's values, with each that only a quantization reads as that leaves it.

    A quantizer drops operators that saturation makes redundant, such as Relu, and names their input
    after their result.
    """
    values = dict(found)
    restored = {
        node.input[0]: node.output[0] for node in graph.nodes if node.op_type == "DequantizeLinear"
    }
    for node in graph.nodes:
        if node.op_type != "QuantizeLinear" or node.output[0] not in restored:
            continue
        source = node.input[0]
        readers = {graph.nodes[index].op_type for index in graph.readers[source]}
        if readers == {"QuantizeLinear"} and source not in graph.outputs:
            values[source] = found[restored[node.output[0]]]
    return values
