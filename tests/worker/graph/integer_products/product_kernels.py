"""Prints what onnxruntime's own kernels compute on this processor, and what the graphs rewritten
for each family of processors compute, as digests by operator: `python product_kernels.py`.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from convkit.worker.graph.graph_session import open_model
from convkit.worker.graph.integer_products.executed_graph import write_executed
from convkit.worker.graph.integer_products.processor_families import host_family
from convkit.worker.graph.integer_products.product_rewriting import SWITCHES, switch_products
from convkit.worker.graph.typed_graph import with_types

SUMMED, COLUMNS = 71, 24
_SCALES = {"xs": np.float32(0.05), "xz": np.uint8(120), "ys": np.float32(0.3), "yz": np.uint8(110)}


def digest_of(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _model(
    nodes: list[onnx.NodeProto], shape: list[object], constants: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _node(operator: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), output.split(), output, **attributes)


def models() -> dict[str, tuple[onnx.ModelProto, np.ndarray]]:
    """Return a model for each way in which onnxruntime multiplies unsigned by signed numbers, with
    its input. Weights are as wide as 8 bits allow, so that some pairs saturate.
    """
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return np.clip(np.round(rng.normal(size=shape) * 45), -128, 127).astype(np.int8)

    x = (rng.normal(size=(2, 13, SUMMED)) * 3).astype(np.float32)
    flat = x.reshape(-1, SUMMED)
    w = weights(SUMMED, COLUMNS)
    ws = np.abs(rng.normal(size=COLUMNS) * 0.01 + 0.02).astype(np.float32)
    bias = rng.normal(size=COLUMNS).astype(np.float32)
    own = {"w": w, "ws": ws, "wz": np.zeros(COLUMNS, np.int8)}
    dynamic = [
        _node("DynamicQuantizeLinear", "x", "q qs qz"),
        _node("MatMulInteger", "q w qz wz", "sums"),
        _node("Cast", "sums", "floats", to=TensorProto.FLOAT),
        _node("Mul", "qs ws", "scale"),
        _node("Mul", "floats scale", "product"),
        _node("Add", "product bias", "y"),
    ]
    sums_alone = [
        *dynamic[:2], _node("Cast", "sums", "y", to=TensorProto.FLOAT)
    ]  # fmt: skip
    end = [_node("QuantizeLinear", "z ys yz", "qy"), _node("DequantizeLinear", "qy ys yz", "y")]

    def begin(axis: int) -> list[onnx.NodeProto]:
        return [
            _node("QuantizeLinear", "x xs xz", "q"),
            _node("DequantizeLinear", "q xs xz", "xf"),
            _node("DequantizeLinear", "w ws wz", "wf", axis=axis),
        ]

    whole = np.round(bias / (_SCALES["xs"] * ws)).astype(np.int32)
    biased = own | _SCALES | {"c": whole, "cs": _SCALES["xs"] * ws}
    read_bias = _node("DequantizeLinear", "c cs", "cf", axis=0)
    rows, any_rows = ["rows", SUMMED], ["batch", "rows", SUMMED]
    found = {
        "dynamic": (_model(dynamic, any_rows, own | {"bias": bias}), x),
        "sums": (_model(sums_alone, any_rows, own), x),
        "floats": (_model([*begin(1), _node("MatMul", "xf wf", "y")], any_rows, own | _SCALES), x),
        "quantized": (
            _model([*begin(1), _node("MatMul", "xf wf", "z"), *end], any_rows, own | _SCALES),
            x,
        ),
    }
    for turned in (0, 1):
        constants = biased | ({"w": np.ascontiguousarray(w.T)} if turned else {})
        product = _node("Gemm", "xf wf cf", "z", transB=turned)
        nodes = [*begin(1 - turned), read_bias, product, *end]
        found[f"gemm {turned}"] = (_model(nodes, rows, constants), flat)
    for name, (channels, outputs, groups, kernel, stride, dilation) in {
        "1x1": (12, 8, 1, 1, 1, 1),
        "3x3": (6, 8, 1, 3, 2, 1),
        "dilated": (5, 8, 1, 3, 1, 2),
        "depthwise": (8, 8, 8, 3, 1, 1),
        "groups": (8, 8, 2, 3, 1, 1),
        "odd groups": (6, 6, 2, 3, 1, 1),
    }.items():
        constants = biased | {
            "w": weights(outputs, channels // groups, kernel, kernel),
            "ws": ws[:outputs],
            "wz": np.zeros(outputs, np.int8),
            "c": whole[:outputs],
            "cs": (_SCALES["xs"] * ws)[:outputs],
        }
        product = _node(
            "Conv",
            "xf wf cf",
            "z",
            group=groups,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            dilations=[dilation, dilation],
        )
        image = (rng.normal(size=(2, channels, 9, 9)) * 3).astype(np.float32)
        model = _model([*begin(0), read_bias, product, *end], ["n", channels, "h", "w"], constants)
        found[f"conv {name}"] = (model, image)
    return found


def computed(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return what onnxruntime computes, and what each family's graph computes."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    found = {"own": session.run(None, {"x": x})[0]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        executed = with_types(ir.load(write_executed(path, Path(folder))))
        nodes = switch_products(executed).saturating
        switched = open_model(ir.to_proto(executed).SerializeToString())
    for family, on in (("exact", 0), ("saturating-pairs", 1)):
        switches = {SWITCHES: np.full(len(nodes), on, np.float32)} if nodes else {}
        found[family] = switched.run(["y"], {"x": x, **switches})[0]
    return found


def all_digests() -> dict[str, dict[str, str]]:
    """Return the digests of all that is computed, by model."""
    return {
        name: {kind: digest_of(values) for kind, values in computed(*given).items()}
        for name, given in models().items()
    }


if __name__ == "__main__":
    json.dump({"family": host_family(), "digests": all_digests()}, sys.stdout)
