"""Faults of versions, element types, kernels and files."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from faults.corpus import fault, healthy
from faults.recipes import write_recipe

AXES = {"batch": {"min": 1, "typical": 2, "max": 4}}
X = {"name": "x", "dtype": "float32", "shape": ["batch", 4], "sample": {"normal": [0, 1]}}
Y = {"name": "y", "dtype": "float32", "shape": ["batch", 4]}
SIGNATURE: dict[str, Any] = {"axes": AXES, "inputs": [X], "outputs": [Y]}

ANOTHER_RELEASE = "only a later release of the runtime, or a new export, supports it"
FILES = "the file itself is damaged or incomplete"


def graph(
    nodes: list[onnx.NodeProto],
    *,
    weights: list[onnx.TensorProto] | None = None,
    opset: int = 17,
    ir_version: int = 8,
    domains: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a graph from x to y, both float32[batch, 4]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    made = helper.make_graph(nodes, "g", [x], [y], weights or [])
    opsets = {"": opset} | (domains or {})
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(made, opset_imports=imports, ir_version=ir_version)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(
        np.random.default_rng(0).normal(size=shape).astype(np.float32), name
    )


def cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=to, name=f"/Cast_{target}")


@fault(code="V101", remedy="opset", repaired=True, source="ORT#20559")
def opset_too_new(folder: Path) -> Path:
    """the file's opset is newer than the runtime knows"""
    return write_recipe(
        folder, graph=graph([helper.make_node("Relu", ["x"], ["y"])], opset=27), **SIGNATURE
    )


@fault(code="V102", remedy="older", repaired=ANOTHER_RELEASE, source="ORT#25932")
def ir_too_new(folder: Path) -> Path:
    """the file's IR version is newer than the runtime reads"""
    return write_recipe(
        folder, graph=graph([helper.make_node("Relu", ["x"], ["y"])], ir_version=14), **SIGNATURE
    )


@fault(
    code="T101",
    place="/Add",
    remedy="float32",
    repaired="the file's element types are part of the file",
    source="PT#143643, ORT#23879",
)
def bfloat16_without_kernels(folder: Path) -> Path:
    """an all-bfloat16 graph: ONNX's checker accepts it, but the runtime has no kernel for Add"""
    b = numpy_helper.from_array(np.ones(4, np.float32), "b")
    nodes = [
        cast("x", "low", TensorProto.BFLOAT16),
        cast("b", "low_b", TensorProto.BFLOAT16),
        helper.make_node("Add", ["low", "low_b"], ["sum"], name="/Add"),
        cast("sum", "y", TensorProto.FLOAT),
    ]
    return write_recipe(folder, graph=graph(nodes, weights=[b]), **SIGNATURE)


@fault(
    code="T102",
    place="/Add",
    remedy="cast",
    repaired="the file's element types are part of the file",
    source="onnxconverter-common#320",
)
def mixed_types(folder: Path) -> Path:
    """a float16 pass left a float32 operand: Add(float16, float32)"""
    nodes = [
        cast("x", "low", TensorProto.FLOAT16),
        helper.make_node("Add", ["low", "b"], ["sum"], name="/Add"),
        cast("sum", "y", TensorProto.FLOAT),
    ]
    return write_recipe(folder, graph=graph(nodes, weights=[weight("b", 4)]), **SIGNATURE)


@fault(
    code="V103",
    place="/Fused",
    remedy="export without the operator",
    repaired="the operator is in the file, and its library in no runtime here",
    source="ORT#20559",
)
def unknown_operator(folder: Path) -> Path:
    """the file uses an operator of a library that the runtime does not know"""
    node = helper.make_node("FusedGelu", ["x"], ["y"], domain="com.example", name="/Fused")
    return write_recipe(folder, graph=graph([node], domains={"com.example": 1}), **SIGNATURE)


@fault(
    code="T105",
    place="determinant",
    remedy="deploy it with onnxruntime",
    repaired="the operator is in the file",
    source="TRT#1635",
)
def no_layer_in_tensorrt(folder: Path) -> Path:
    """ONNX and onnxruntime have the operator, and TensorRT's parser has no layer for it"""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Unsqueeze", ["x", "last"], ["column"]),
        helper.make_node("MatMul", ["column", "row"], ["products"]),
        helper.make_node("Add", ["products", "eye"], ["squares"]),
        helper.make_node("Det", ["squares"], ["determinants"], name="determinant"),
        helper.make_node("Unsqueeze", ["determinants", "last_of_one"], ["scale"]),
        helper.make_node("Mul", ["h", "scale"], ["y"]),
    ]
    weights = [
        weight("w", 4, 4),
        weight("row", 1, 4),
        numpy_helper.from_array(np.eye(4, dtype=np.float32), "eye"),
        numpy_helper.from_array(np.array([2]), "last"),
        numpy_helper.from_array(np.array([1]), "last_of_one"),
    ]
    keys: dict[str, Any] = {"targets": {"trt": {"runtime": "tensorrt"}}}
    return write_recipe(folder, graph=graph(nodes, weights=weights), **SIGNATURE, **keys)


def _external(folder: Path) -> Path:
    """Write a recipe for a file whose weights lie in `weights.bin` beside it; return the recipe."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    model = graph(nodes, weights=[weight("w", 4, 64), weight("v", 64, 4)])
    recipe = write_recipe(folder, graph=model, **SIGNATURE)
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    return recipe


@fault(
    code="E210", place="weights.bin", remedy="beside the model", repaired=FILES, source="ORT#4424"
)
def weights_missing(folder: Path) -> Path:
    """the weights file was not copied with the model"""
    recipe = _external(folder)
    (folder / "weights.bin").unlink()
    return recipe


@fault(code="E210", place="v", remedy="again, completely", repaired=FILES, source="ORT#4424")
def weights_truncated(folder: Path) -> Path:
    """the copy of the weights file is truncated"""
    recipe = _external(folder)
    data = (folder / "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(data[:-100])
    return recipe


@fault(code="E210", place="w", remedy="again, completely", repaired=FILES, source="ORT#4424")
def weights_at_a_wrong_offset(folder: Path) -> Path:
    """a weight's entry points past the end of the weights file"""
    recipe = _external(folder)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "offset":
            entry.value = "1000000"
    onnx.save(model, folder / "model.onnx")
    return recipe


@fault(code="E210", place="w", remedy="again, completely", repaired=FILES, source="ORT#4424")
def weights_of_another_size(folder: Path) -> Path:
    """a weight's entry has fewer bytes than its shape and type require"""
    recipe = _external(folder)
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "length":
            entry.value = "512"
    onnx.save(model, folder / "model.onnx")
    return recipe


@healthy(
    tempts="files outside the model's folder, which onnxruntime refuses behind links (ORT#27353)"
)
def links_into_a_cache(folder: Path) -> Path:
    """model and weights are links into a folder of blobs, as in a hub's cache"""
    recipe = _external(folder)
    (folder / "blobs").mkdir()
    for name in ("model.onnx", "weights.bin"):
        (folder / name).rename(folder / "blobs" / name)
        (folder / name).symlink_to(folder / "blobs" / name)
    return recipe
