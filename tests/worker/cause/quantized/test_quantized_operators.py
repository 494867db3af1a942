"""Weights of every quantized operator that onnxruntime writes are compared with the original's."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from convkit.worker.cause.cause_search import localize, outputs_error
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.quantized.float_lowering import lowered
from convkit.worker.cause.quantized.quantized_comparison import QuantizedMatch, compare_quantized
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.cause.wording.cause_findings import findings_of

pytestmark = pytest.mark.processors

SIZE = 64


class Dense(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Linear(SIZE, 2 * SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Convolved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = torch.nn.Conv2d(4, 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(-1, 4, 4, 4))


def inputs() -> torch.Tensor:
    return torch.randn(5, SIZE, generator=torch.Generator().manual_seed(0))


class Calibration(CalibrationDataReader):
    def __init__(self) -> None:
        self.feeds = iter([{"x": inputs().numpy()}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


@functools.cache
def exported(convolution: bool, product: bool = False) -> bytes:
    """Return the float model: a Gemm, a product with an addition, or a convolution."""
    module = Convolved() if convolution else Dense()
    weight = module.layer.weight.detach().numpy()
    bias = numpy_helper.from_array(module.layer.bias.detach().numpy(), "bias")
    if convolution:
        shape = numpy_helper.from_array(np.array([-1, 4, 4, 4]), "shape")
        nodes = [
            helper.make_node("Reshape", ["x", "shape"], ["image"]),
            helper.make_node("Conv", ["image", "weight", "bias"], ["y"], name="layer"),
        ]
        weights = [numpy_helper.from_array(weight, "weight"), bias, shape]
    elif product:
        nodes = [
            helper.make_node("MatMul", ["x", "weight"], ["product"], name="layer"),
            helper.make_node("Add", ["product", "bias"], ["y"], name="sum"),
        ]
        weights = [numpy_helper.from_array(weight.T.copy(), "weight"), bias]
    else:
        nodes = [helper.make_node("Gemm", ["x", "weight", "bias"], ["y"], name="layer", transB=1)]
        weights = [numpy_helper.from_array(weight, "weight"), bias]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", SIZE])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model.SerializeToString()


def static(folder: Path, convolution: bool = False, product: bool = False) -> onnx.ModelProto:
    source, made = folder / "float.onnx", folder / "made.onnx"
    source.write_bytes(exported(convolution, product))
    quantize_static(source, made, Calibration(), QuantFormat.QOperator, per_channel=not convolution)
    return onnx.load(made)


def dynamic(folder: Path, convolution: bool = False) -> onnx.ModelProto:
    source, made = folder / "float.onnx", folder / "made.onnx"
    source.write_bytes(exported(convolution, product=True))
    quantize_dynamic(source, made)
    return onnx.load(made)


def blocks(folder: Path, operators: QuantFormat = QuantFormat.QOperator) -> onnx.ModelProto:
    quantizer = MatMulNBitsQuantizer(
        onnx.load_from_string(exported(convolution=False, product=True)),
        block_size=16,
        is_symmetric=operators is QuantFormat.QDQ,
        quant_format=operators,
    )
    quantizer.process()
    return quantizer.model.model


def fused(folder: Path) -> onnx.ModelProto:
    """Write the dynamic product as the single operator that onnxruntime fuses it to."""
    model = dynamic(folder)
    weights = {each.name: each for each in model.graph.initializer}
    del model.graph.node[:]
    given = ["x", *(name for name in weights if name.startswith("weight_")), "bias"]
    order = ["x", "weight_quantized", "weight_scale", "weight_zero_point", "bias"]
    assert sorted(given) == sorted(order)
    model.graph.node.append(
        helper.make_node("DynamicQuantizeMatMul", order, ["y"], domain="com.microsoft")
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def to_float(folder: Path) -> onnx.ModelProto:
    """Write the dynamic product as its quantization and one product to float."""
    model = fused(folder)
    (node,) = model.graph.node
    _, weight, scale, zero, bias = node.input
    del model.graph.node[:]
    given = ["q", weight, "s", scale, "z", zero, bias]
    model.graph.node.extend(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            helper.make_node("MatMulIntegerToFloat", given, ["y"], domain="com.microsoft"),
        ]
    )
    return model


FORMS: dict[str, Callable[[Path], onnx.ModelProto]] = {
    "QGemm": static,
    "QLinearMatMul": functools.partial(static, product=True),
    "QLinearConv": functools.partial(static, convolution=True),
    "MatMulInteger": dynamic,
    "ConvInteger": functools.partial(dynamic, convolution=True),
    "DynamicQuantizeMatMul": fused,
    "MatMulIntegerToFloat": to_float,
    "MatMulNBits": blocks,
    "DequantizeLinear": functools.partial(blocks, operators=QuantFormat.QDQ),
}


def module_of(form: str) -> torch.nn.Module:
    return Convolved() if "Conv" in form else Dense()


def compared(model: onnx.ModelProto, form: str) -> list[QuantizedMatch]:
    state = {name: each.numpy() for name, each in module_of(form).state_dict().items()}
    return compare_quantized(lowered(make_graph(onnx_ir.from_proto(model)))[1], state)


@pytest.mark.parametrize("form", FORMS)
def test_the_weight_is_recognized_and_right(form: str, tmp_path: Path) -> None:
    model = FORMS[form](tmp_path)
    assert form in {node.op_type for node in model.graph.node}
    (match,) = compared(model, form)
    assert (match.original, match.problem) == ("layer.weight", None)


@pytest.mark.parametrize("form", FORMS)
def test_the_lowered_graph_computes_the_same(form: str, tmp_path: Path) -> None:
    model = FORMS[form](tmp_path)
    graph = make_graph(onnx_ir.from_proto(model))
    floats, weights = lowered(graph)
    assert form not in {node.op_type for node in floats.nodes}
    assert len(weights) == 1
    feeds = {"x": inputs().numpy()}
    own, other = (each.run(["y"], feeds)["y"] for each in (graph, floats))
    # A static quantization of the output may round to a neighboring step.
    steps = 1.01 * np.diff(np.unique(own)).min() if form.startswith(("Q", "QLinear")) else 1e-5
    assert np.abs(own - other).max() <= steps


def weight_of(model: onnx.ModelProto, ending: str) -> onnx.TensorProto:
    (tensor,) = (
        each
        for each in model.graph.initializer
        if each.name.startswith("weight") and each.name.endswith(ending)
    )
    return tensor


def changed(
    model: onnx.ModelProto, ending: str, change: Callable[[np.ndarray], np.ndarray]
) -> onnx.ModelProto:
    tensor = weight_of(model, ending)
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(change(values).astype(values.dtype), tensor.name))
    return model


def doubled(values: np.ndarray) -> np.ndarray:
    copy = values.copy().reshape(-1)
    copy[copy.size // 2] *= 2
    return copy.reshape(values.shape)


@pytest.mark.parametrize("form", FORMS)
def test_a_wrong_scale_is_named(form: str, tmp_path: Path) -> None:
    model = FORMS[form](tmp_path)
    ending = {"MatMulNBits": "_scales", "DequantizeLinear": "_scales"}.get(form, "_scale")
    (match,) = compared(changed(model, ending, doubled), form)
    assert match.problem is not None
    assert "scale" in match.problem
    assert re.search(r"2(\.0\d*)? times", match.problem)
    many = numpy_helper.to_array(weight_of(model, ending)).size > 1
    assert ("one channel" in match.problem or "one block" in match.problem) == many


@pytest.mark.parametrize("form", [each for each in FORMS if each != "DequantizeLinear"])
def test_a_wrong_zero_point_is_named(form: str, tmp_path: Path) -> None:
    model = FORMS[form](tmp_path)
    if form == "MatMulNBits":
        (match,) = compared(changed(model, "_zero_points", lambda each: each ^ 3), form)
    else:
        (match,) = compared(changed(model, "_zero_point", lambda each: each + 5), form)
    assert match.problem is not None
    assert "zero point" in match.problem


def block_model(
    block: int = 32, declared: int | None = None, change: Callable | None = None
) -> onnx.ModelProto:
    """Quantize the layer to 4 bits in blocks, as declared in a file with other blocks."""
    declared = declared or block
    weight = Dense().layer.weight.detach().numpy()  # [N, K], as the operator stores it
    rows = weight.reshape(len(weight), -1, block)
    scale = np.abs(rows).max(-1, keepdims=True) / 7
    exact = (rows / scale).reshape(len(weight), -1)
    numbers = (np.round(exact) + 8).astype(np.uint8)
    scales = scale.squeeze(-1)
    if declared > block:
        scales = scales[:, :: declared // block]
    elif declared < block:
        scales = scales.repeat(block // declared, axis=1) * np.float32(1.25)
    parts = {"numbers": numbers, "scales": np.ascontiguousarray(scales), "exact": exact}
    if change is not None:
        change(parts)
    pairs = parts["numbers"].reshape(len(weight), -1, 2)
    low, high = pairs[..., 0], pairs[..., 1]
    packed = (low | (high << 4)).reshape(len(weight), SIZE // declared, declared // 2)
    node = helper.make_node(
        "MatMulNBits",
        ["x", "weight_Q4", "weight_scales", "", "", "bias"],
        ["y"],
        domain="com.microsoft",
        K=SIZE,
        N=2 * SIZE,
        bits=4,
        block_size=declared,
    )
    model = onnx.load_from_string(exported(convolution=False))
    del model.graph.node[:]
    model.graph.node.append(node)
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(packed, "weight_Q4"),
            numpy_helper.from_array(parts["scales"], "weight_scales"),
        ]
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def swapped_pairs(parts: dict[str, np.ndarray]) -> None:
    parts["numbers"] = parts["numbers"].reshape(-1, 2)[:, ::-1].reshape(parts["numbers"].shape)


def transposed_scales(parts: dict[str, np.ndarray]) -> None:
    parts["scales"] = np.ascontiguousarray(parts["scales"].T).reshape(parts["scales"].shape)


def signed_numbers(parts: dict[str, np.ndarray]) -> None:
    parts["numbers"] = (parts["numbers"] + 8) & 15


def clipped_range(parts: dict[str, np.ndarray]) -> None:
    parts["scales"] = parts["scales"] / np.float32(2)
    parts["numbers"] = (np.clip(np.round(2 * parts["exact"]), -8, 7) + 8).astype(np.uint8)


BLOCK_FAULTS: dict[str, tuple[onnx.ModelProto, str]] = {
    "larger": (block_model(16, 32), "its block size is 32 and it was rounded in blocks of 16"),
    "smaller": (block_model(32, 16), "its block size is 16 and it was rounded in blocks of 32"),
    "pairs": (block_model(change=swapped_pairs), "the two 4-bit numbers of each byte are swapped"),
    "scales": (block_model(change=transposed_scales), "the scales of its blocks are in transposed"),
    "signed": (block_model(change=signed_numbers), "it is uint4 and its numbers are those of int4"),
    "clipped": (block_model(change=clipped_range), "its range is clipped"),
}


@pytest.mark.parametrize("name", BLOCK_FAULTS)
def test_what_is_wrong_with_blocks_is_named_and_proven(name: str) -> None:
    model, text = BLOCK_FAULTS[name]
    module, x = Dense(), inputs()
    state = {key: each.numpy() for key, each in module.state_dict().items()}
    graph = make_graph(onnx_ir.from_proto(model))
    recording = record(module, {"x": x}, ("y",))
    diagnosis = localize(recording, graph, {"x": x.numpy()}, state)
    finding = findings_of(diagnosis, "case")[0]
    assert finding.code == "Q108"
    assert text in finding.message
    assert finding.place.tensor == "weight_Q4"
    assert finding.evidence["proven"] is True


def test_blocks_that_are_right_are_only_coarse() -> None:
    module, x = Dense(), inputs()
    state = {key: each.numpy() for key, each in module.state_dict().items()}
    graph = make_graph(onnx_ir.from_proto(block_model()))
    recording = record(module, {"x": x}, ("y",))
    diagnosis = localize(recording, graph, {"x": x.numpy()}, state)
    assert [each.kind for each in diagnosis.causes] == ["rounding"]
    assert diagnosis.remaining < 1e-5 < outputs_error(recording, graph, {"x": x.numpy()})
