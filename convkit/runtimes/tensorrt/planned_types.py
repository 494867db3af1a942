"""The float types of a graph's node results, in which an engine built from it must compute. Needs
onnx-ir.
"""

from pathlib import Path

from convkit.models.graph.dtypes import contract_dtype
from convkit.models.graph.loading import load_model
from convkit.models.graph.modules import nodes_with_modules
from convkit.models.graph.preparation import with_types

_FLOATS = ("float16", "bfloat16", "float32")


def planned_types(graph: Path) -> dict[str, str]:
    """Return the float type of each named node's first float result."""
    planned = {}
    for node, _ in nodes_with_modules(with_types(load_model(graph))):
        types = [contract_dtype(value.dtype) for value in node.outputs if value.dtype is not None]
        floats = [kind for kind in types if kind in _FLOATS]
        if node.name and floats:
            planned[node.name] = str(floats[0])
    return planned
