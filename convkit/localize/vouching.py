"""What right values say of those that they are computed from.

A float that is right vouches for all that it is computed from. Whole numbers and booleans vouch for
no float: the largest of wrong scores may be the right one.
"""

from collections.abc import Collection

from convkit.localize.graph import VALUELESS, Graph, Values, reads
from convkit.localize.original import Recording


def vouched_names(graph: Graph, found: Values, known: Collection[str]) -> set[str]:
    """Return a graph's known values and all that they vouch for; `found` are its values."""

    def is_float(name: str) -> bool:
        return name in found and found[name].dtype.kind == "f"

    vouched = set(known)
    for node in reversed(graph.nodes):
        vouching = vouched.intersection(node.output)
        if vouching and node.op_type not in VALUELESS:
            floats = any(is_float(name) for name in vouching)
            vouched.update(name for name in reads(node) if floats or not is_float(name))
    return vouched


def vouched_values(recording: Recording, matched: Collection[int]) -> set[int]:
    """Return the original's values that have a match in the graph, and all that they vouch for."""

    def is_float(value: int) -> bool:
        return recording.values[value].array.dtype.kind == "f"

    vouched = set(matched)
    for operation in reversed(recording.operations):
        vouching = vouched.intersection(operation.outputs)
        if vouching:
            floats = any(is_float(value) for value in vouching)
            vouched.update(value for value in operation.inputs if floats or not is_float(value))
    return vouched
