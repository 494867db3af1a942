"""Sums beyond float16's range, inside operators whose results are within it.

A mean over 512 x 512 values near 1 is near 1, and its sum 262144. Devices that add up in float32
return the mean; those that add up in float16 return infinity. The operator's result alone never
shows which.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.module_patterns import matches, operation_path
from convkit.worker.cause.graphs.runnable_graph import (
    PieceFailedError,
    label,
    module_of,
    read_graph,
    source_of,
)
from convkit.worker.precision.diagnosis.diagnosis_messages import wide_sum

# Operators that divide a sum of all values of some axes.
_MEANS = ("ReduceMean", "GlobalAveragePool")


def wide_sums(
    exported: Path, feeds: Mapping[str, np.ndarray], kept: Sequence[str] = ()
) -> list[Finding]:
    """Return a warning (N215) for each mean whose sum is beyond float16 in a case, given the
    exported float32 graph and the case's inputs. Modules that `kept` names stay in float32.

    The sum is what the mean says: the result times the number of values in it. Partial sums of both
    signs may be larger.
    """
    graph = read_graph(exported)
    means = [
        node
        for node in graph.nodes
        if node.op_type in _MEANS and node.domain == "" and not _is_kept(node, kept)
    ]
    if not means:
        return []
    names = [name for node in means for name in (node.input[0], node.output[0])]
    try:
        values = graph.run(list(dict.fromkeys(names)), dict(feeds))
    except PieceFailedError:
        return []
    found = (_wide_sum(node, values) for node in means)
    return [finding for finding in found if finding is not None]


def _is_kept(node: onnx.NodeProto, kept: Sequence[str]) -> bool:
    paths = {module_of(node), operation_path(module_of(node), node.op_type)}
    return any(matches(pattern, path) for pattern in kept for path in paths)


def _wide_sum(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> Finding | None:
    taken, mean = values[node.input[0]], values[node.output[0]]
    if not mean.size or taken.dtype != np.float32:
        return None
    count = taken.size // mean.size
    largest = float(np.abs(mean.astype(np.float64)).max()) * count
    limit = LIMITS["float16"].largest
    # A single value beyond the range is no sum: it overflows by itself.
    if count == 1 or not np.isfinite(largest) or largest <= limit:
        return None
    place = Place(
        tensor=node.output[0],
        node=label(node),
        module=module_of(node) or None,
        source=source_of(node),
    )
    return wide_sum(f"{node.op_type} {label(node)}", place, count, largest)
