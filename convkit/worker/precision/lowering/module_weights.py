"""Counts the weights of each module by the type that an assignment stores them in."""

import dataclasses

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.lowering.precision_plan import Assignment


@dataclasses.dataclass(frozen=True)
class ModuleWeights:
    """Number of float32 weight elements, by the type that an assignment stores them in."""

    low: int = 0
    float32: int = 0


def weights_by_module(model: ir.Model, assignment: Assignment) -> dict[str, ModuleWeights]:
    """Return the weights by the module whose node consumes them; a weight shared by several modules
    counts once.

    It counts as low if any node consumes it in the low type.
    """
    found: dict[str, ModuleWeights] = {}
    modules = dict(nodes_with_modules(model))
    for graph in model.graphs():
        held = [node.outputs[0] for node in graph if node.op_type == "Constant"]
        for value in (*graph.initializers.values(), *held):
            users = [node for node, _ in value.uses()]
            if value.dtype != ir.DataType.FLOAT or value.is_graph_input() or not users:
                continue
            low = [
                node
                for node in users
                if (choice := assignment.choices.get(node)) and choice.dtype != "float32"
            ]
            module = modules.get((low or users)[0], "")
            before = found.get(module, ModuleWeights())
            tensor = constant_tensor(value)
            elements = tensor.size if tensor is not None else 0
            found[module] = ModuleWeights(
                before.low + (elements if low else 0), before.float32 + (0 if low else elements)
            )
    return found
