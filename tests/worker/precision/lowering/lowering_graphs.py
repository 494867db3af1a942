"""Small graphs to lower, as text, and what is asked of the results."""

from collections import Counter

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

F16, F32 = ir.DataType.FLOAT16, ir.DataType.FLOAT


def model_text(
    body: str, header: str = "float[N, 2] x", result: str = "float[N, 2] y", constants: str = ""
) -> str:
    weights = f"<{constants}>" if constants else ""
    return (
        f'<ir_version: 9, opset_import: ["": 18]> g ({header}) => ({result}) {weights} {{ {body} }}'
    )


def with_modules(text: str, *modules: str) -> ir.Model:
    model = ir.from_onnx_text(text)
    for node, module in zip(model.graph.all_nodes(), modules, strict=True):
        node.metadata_props["convkit.module"] = module
    return model


def ops(model: ir.Model) -> Counter:
    return Counter(node.op_type for node in model.graph.all_nodes())


def evaluate(model: ir.Model, x: np.ndarray) -> list[np.ndarray]:
    return ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})


def values(model: ir.Model) -> dict[str, ir.Value]:
    return {value.name: value for node in model.graph.all_nodes() for value in node.outputs}
