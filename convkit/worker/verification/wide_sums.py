"""Sums beyond float16's range, inside operators whose results are within it.

A mean over 512 x 512 values near 1 is near 1, and its sum 262144. Devices that add up in float32
return the mean; those that add up in float16 return infinity. The operator's result alone never
shows which.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import LIMITS
from convkit.worker.cause.graphs.runnable_graph import (
    PieceFailedError,
    label,
    module_of,
    read_graph,
    source_of,
)

# Operators that divide a sum of all values of some axes.
_MEANS = ("ReduceMean", "GlobalAveragePool")
_DEVICES = (
    "devices that add up in float16, such as Apple's Neural Engine and other NPUs. CPUs and"
    " NVIDIA's GPUs add up in float32"
)


def wide_sums(exported: Path, feeds: Mapping[str, np.ndarray]) -> list[Finding]:
    """Return a warning (N215) for each mean whose sum is beyond float16 in a case, given the
    exported float32 graph and the case's inputs.

    The sum is what the mean says: the result times the number of values in it. Partial sums of both
    signs may be larger.
    """
    graph = read_graph(exported)
    means = [node for node in graph.nodes if node.op_type in _MEANS and node.domain == ""]
    if not means:
        return []
    names = [name for node in means for name in (node.input[0], node.output[0])]
    try:
        values = graph.run(list(dict.fromkeys(names)), dict(feeds))
    except PieceFailedError:
        return []
    found = (_wide_sum(node, values) for node in means)
    return [finding for finding in found if finding is not None]


def _wide_sum(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> Finding | None:
    taken, mean = values[node.input[0]], values[node.output[0]]
    if not mean.size or taken.dtype != np.float32:
        return None
    count = taken.size // mean.size
    largest = float(np.abs(mean.astype(np.float64)).max()) * count
    limit = LIMITS["float16"].largest
    if not np.isfinite(largest) or largest <= limit:
        return None
    module, source = module_of(node), source_of(node)
    where = f"{node.op_type} {label(node)}"
    details = ", ".join(
        part
        for part in (f"module {module}" if module else "", f"at {source}" if source else "")
        if part
    )
    where += f" ({details})" if details else ""
    return Finding(
        "N215",
        f"{where} adds up {count} values to {largest:.3g}, beyond float16's {limit:.0f}: its result"
        f" is infinite on {_DEVICES}",
        Place(tensor=node.output[0], node=label(node), module=module or None, source=source),
        {"sum": largest, "count": count},
        Remedy(
            "For such a device, take the mean in two steps, one axis after the other, or keep the"
            " module in float32. convkit has tried neither: this machine has no such device."
        ),
    )
