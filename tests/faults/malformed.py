"""Faults of files that break the rules of ONNX: tools that edit or merge graphs write them, and
runtimes refuse them with a message about something else, or run them regardless.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from faults.corpus import fault
from faults.recipes import write_recipe
from faults.versions import FILES, SIGNATURE, Y, graph, weight


def file(folder: Path, damage: Callable[[onnx.ModelProto], None], **keys: Any) -> Path:
    """Write a graph of a product and a Relu, with a damage to it; return its recipe."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    model = graph(nodes, weights=[weight("w", 4, 4)])
    h = helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", 4])
    model.graph.value_info.append(h)
    damage(model)
    return write_recipe(folder, graph=model, **SIGNATURE | keys)


@fault(
    code="E231",
    place="*model.onnx",
    remedy="git lfs pull",
    repaired=FILES,
    source="microsoft/onnxruntime-genai#684",
)
def pointer_of_git_lfs(folder: Path) -> Path:
    """a clone without Git LFS: the model is a text file of three lines"""
    recipe = file(folder, lambda _: None)
    digest = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    (folder / "model.onnx").write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 133093490\n"
    )
    return recipe


@fault(
    code="E232",
    place="relu",
    remedy="opset_import",
    repaired=FILES,
    source="onnx/onnx#6653, ORT PR 13978",
)
def domain_not_imported(folder: Path) -> Path:
    """an optimizer or a merge added an operator of another domain, but not the domain's version"""

    def damage(model: onnx.ModelProto) -> None:
        model.graph.node[1].domain = "com.example"

    return file(folder, damage)


@fault(code="E233", place="relu", remedy="opset", repaired=FILES, source="PINTO0309/onnx2tf#868")
def operator_of_a_later_opset(folder: Path) -> Path:
    """a file of opset 17 has a Gelu, which ONNX has since opset 20"""

    def damage(model: onnx.ModelProto) -> None:
        model.graph.node[1].op_type = "Gelu"

    return file(folder, damage)


@fault(
    code="E234",
    place="relu",
    remedy="sort",
    repaired=FILES,
    source="onnx/onnx#1920, microsoft/onnxruntime-genai#707",
)
def unsorted_nodes(folder: Path) -> Path:
    """a converter wrote the nodes unsorted: onnxruntime runs them, and nothing else does"""

    def damage(model: onnx.ModelProto) -> None:
        nodes = list(model.graph.node)[::-1]
        del model.graph.node[:]
        model.graph.node.extend(nodes)

    return file(folder, damage)


@fault(
    code="E235",
    place="x",
    remedy="which tensors it returns",
    repaired="a warning: the model is right, and you decide which outputs it has",
    source="pytorch/TensorRT#812",
)
def input_returned(folder: Path) -> Path:
    """the graph returns one of its inputs as an output, which TensorRT refuses"""

    def damage(model: onnx.ModelProto) -> None:
        model.graph.output.append(model.graph.input[0])

    same = {"name": "same", "from": "x", "dtype": "float32", "shape": ["batch", 4]}
    return file(folder, damage, outputs=[Y, same])


@fault(code="E236", place="h", remedy="value_info", repaired=FILES, source="ORT#3015")
def declared_as_another_type(folder: Path) -> Path:
    """an edit changed a value's element type, but not its entry in value_info"""

    def damage(model: onnx.ModelProto) -> None:
        model.graph.value_info[0].type.tensor_type.elem_type = TensorProto.INT64

    return file(folder, damage)


@fault(
    code="E237",
    place="lost",
    remedy="layer may have been lost",
    repaired="a warning: the results are right; the file is larger than it must be",
    source="PT#13552, ORT#2662",
)
def weight_of_no_layer(folder: Path) -> Path:
    """the file has the weights of a layer that no node reads"""
    return file(folder, lambda model: model.graph.initializer.append(weight("lost", 4, 8)))


@fault(code="E238", place="relu", remedy="export", repaired=FILES, source="microsoft/CNTK#3013")
def attribute_missing(folder: Path) -> Path:
    """a converter wrote a Cast without the type to cast to"""

    def damage(model: onnx.ModelProto) -> None:
        model.graph.node[1].op_type = "Cast"

    return file(folder, damage)


@fault(
    code="E239",
    place="w",
    remedy="good checkpoint",
    repaired=FILES,
    source="TF#46002, dmlc/gluon-cv#1052",
)
def weight_of_nan(folder: Path) -> Path:
    """a checkpoint with NaN in a weight was exported"""

    def damage(model: onnx.ModelProto) -> None:
        values = numpy_helper.to_array(model.graph.initializer[0]).copy()
        values[1, 2] = np.nan
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "w"))

    return file(folder, damage)
