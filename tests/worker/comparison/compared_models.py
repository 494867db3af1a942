"""A small exported model, written as convkit writes it, and ways to change a copy of it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir
from onnx import numpy_helper

from convkit.protocol.messages import CompareRequest, CompareResult, FileComparison
from convkit.worker.graph.graph_files import write_model
from convkit.worker.job_context import Context
from convkit.worker.stages import compare

Change = Callable[[onnx.ModelProto], None]

# Two layers with weights outside of the graph's file, a branch, and two nodes that can stand in
# either order.
TEXT = """
<ir_version: 8, opset_import: ["" : 17], producer_name: "convkit",
 metadata_props: ["convkit.contract": "{\\"axes\\": [{\\"max\\": 4}]}", "author": "somebody"]>
main_graph (float[batch, 16] x, bool flag) => (float[batch, 8] y, float[batch, 16] z)
<float[16, 8] weight, float[8] bias, float[16] gain>
{
    [product] p = MatMul(x, weight)
    [sum] s = Add(p, bias)
    [other] q = Mul(x, gain)
    [leaky] z = LeakyRelu<alpha = 0.25>(q)
    [branch] y = If (flag) <
        then_branch = then_graph () => (float[batch, 8] a) { [inner] a = Relu(s) },
        else_branch = else_graph () => (float[batch, 8] b) {
            [factor] f = Constant<value = float[1] {0.5}>()
            [scaled] b = Mul(s, f) }
    >
}
"""


def weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    shapes = {"weight": (16, 8), "bias": (8,), "gain": (16,)}
    return {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def model() -> onnx.ModelProto:
    made = onnx.parser.parse_model(TEXT)
    del made.graph.initializer[:]
    for name, value in weights().items():
        made.graph.initializer.append(numpy_helper.from_array(value, name))
    for node in made.graph.node:
        note(node, "convkit.module", f"encoder.{node.name}")
    return made


def note(place, key: str, text: str) -> None:
    entry = place.metadata_props.add()
    entry.key, entry.value = key, text


def node(made: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(each for each in made.graph.node if each.name == name)


def attribute(of: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    return next(each for each in of.attribute if each.name == name)


def set_weight(name: str, index: tuple[int, ...], value: Callable[[np.float32], float]) -> Change:
    def change(made: onnx.ModelProto) -> None:
        (tensor,) = (each for each in made.graph.initializer if each.name == name)
        array = numpy_helper.to_array(tensor).copy()
        array[index] = value(array[index])
        tensor.CopyFrom(numpy_helper.from_array(array, name))

    return change


def write(folder: Path, change: Change | None = None) -> Path:
    """Write an artifact: the model, its larger weights in their own file, its contract."""
    folder.mkdir(parents=True)
    made = model()
    if change is not None:
        change(made)
    write_model(onnx_ir.serde.deserialize_model(made), folder)
    (folder / "contract.json").write_text(json.dumps({"axes": [{"name": "batch", "max": 4}]}))
    return folder


def compared(first: Path, second: Path, epsilon: float = 1e-6) -> CompareResult:
    """Compare as the worker does."""
    return compare.run(CompareRequest(str(first), str(second), epsilon), Context(first))[0]


def entry(result: CompareResult, name: str = "model.onnx") -> FileComparison:
    return next(file for file in result.files if file.name == name)


def likenesses(result: CompareResult) -> dict[str, str]:
    return {file.name: file.likeness for file in result.files}
