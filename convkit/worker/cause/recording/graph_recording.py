"""An ONNX graph as the original: each of its nodes is an operation of the recording."""

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, Values, module_of, reads
from convkit.worker.cause.recording.recorded_call import Operation, Recording, Value

# torch's names of operations that the search looks for: what only moves elements, and norms.
_NAMES = {
    "Reshape": "reshape",
    "Flatten": "reshape",
    "Transpose": "permute",
    "Expand": "expand",
    "Unsqueeze": "unsqueeze",
    "Squeeze": "squeeze",
    "Slice": "slice",
    "Split": "split",
    "Identity": "alias",
    "BatchNormalization": "batch_norm",
}
# Constants of more elements are weights, others are numbers that nodes compute with.
_NUMBER = 1


def record_graph(graph: Graph, feeds: Values, outputs: dict[str, str]) -> Recording:
    """Run a graph once, and record what each node computes.

    `outputs` are the graph's own names by those that the recording gets. Raises PieceFailedError.
    """
    names = [name for node in graph.nodes for name in node.output if name]
    found = graph.run(names, feeds)
    values: list[Value] = []
    numbers: dict[str, int] = {}

    def add(name: str, producer: int | None, kind: str = "") -> int | None:
        array = found.get(name, feeds.get(name, graph.constants.get(name)))
        if array is None:  # of a type that numpy lacks, or no tensor
            return None
        numbers[name] = len(values)
        values.append(Value(len(values), array, producer, name, kind))
        return numbers[name]

    for name in graph.inputs:
        add(name, None, "input")
    operations: list[Operation] = []
    for node in graph.nodes:
        index = len(operations)
        for name in reads(node):
            if name not in numbers and name in graph.constants:
                is_weight = graph.constants[name].size > _NUMBER
                add(name, None, "weight" if is_weight else "constant")
        inputs = tuple(numbers[name] for name in reads(node) if name in numbers)
        made = (add(name, index) for name in node.output if name)
        results = tuple(each for each in made if each is not None)
        kind = _NAMES.get(node.op_type, node.op_type)
        scalars = tuple(_scalars(node, graph))
        operations.append(Operation(index, kind, module_of(node), None, inputs, results, scalars))
    known = {ours: numbers[name] for ours, name in outputs.items() if name in numbers}
    return Recording(tuple(operations), tuple(values), known)


def weights_of(graph: Graph) -> dict[str, np.ndarray]:
    """Return a graph's float constants, as the state that other models are compared with."""
    return {
        name: values
        for name, values in graph.constants.items()
        if values.dtype.kind == "f" and values.size > _NUMBER
    }


def _scalars(node: onnx.NodeProto, graph: Graph) -> list[tuple[str, object]]:
    """Return the numbers that a node computes with: attributes, and constants of a few elements."""
    found: list[tuple[str, object]] = []
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, int | float):
            found.append((attribute.name, value))
        elif isinstance(value, list) and value and isinstance(value[0], int | float):
            found.append((attribute.name, tuple(value)))
    for name in node.input:
        values = graph.constants.get(name)
        if values is not None and values.size == 1 and values.dtype.kind in "fiu":
            found.append((name, values.item()))
        elif values is not None and 1 < values.size < 9 and values.dtype.kind in "iu":
            found.append((name, tuple(values.ravel().tolist())))
    return found
