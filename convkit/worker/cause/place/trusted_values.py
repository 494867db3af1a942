"""Which values must be right, because others are.

If a float is right, so is everything that it was computed from. A whole number or a boolean proves
no float: the largest of wrong scores may be the right one.
"""

from collections.abc import Collection

from convkit.worker.cause.graphs.runnable_graph import VALUELESS, Graph, Values, reads
from convkit.worker.cause.recording.recorded_call import Recording


def trusted_names(graph: Graph, found: Values, known: Collection[str]) -> set[str]:
    """Return a graph's known values and those behind them that must be right, too; `found` are its
    values.
    """

    def is_float(name: str) -> bool:
        return name in found and found[name].dtype.kind == "f"

    trusted = set(known)
    for node in reversed(graph.nodes):
        right = trusted.intersection(node.output)
        if right and node.op_type not in VALUELESS:
            floats = any(is_float(name) for name in right)
            trusted.update(name for name in reads(node) if floats or not is_float(name))
    return trusted


def trusted_values(recording: Recording, matched: Collection[int]) -> set[int]:
    """Return the original's values that have a match in the graph, and those behind them that must
    be right, too.
    """

    def is_float(value: int) -> bool:
        return recording.values[value].array.dtype.kind == "f"

    trusted = set(matched)
    for operation in reversed(recording.operations):
        right = trusted.intersection(operation.outputs)
        if right:
            floats = any(is_float(value) for value in right)
            trusted.update(value for value in operation.inputs if floats or not is_float(value))
    return trusted
