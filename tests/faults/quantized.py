"""Faults of quantization: what eight and four bits do to weights and activations that do not suit
them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe
from faults.spans import ADOPTED

SHAPE = ["batch", 32]
NET = """
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.tanh(self.dense(x) * 2)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(4)])
        self.head = torch.nn.Linear(32, 32)
        CHANGE

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def build():
    return Net()
"""


def quantized(
    folder: Path,
    change: str,
    precision: dict[str, Any],
    *,
    after: str = "self.head(x)",
    processors: str = "exact",
    **keys: Any,
) -> Path:
    """Write a small network of linear layers, with a change to its weights or its head, to be
    quantized. Its products saturate on processors without VNNI, which is a fault of its own.
    """
    code = NET.replace("CHANGE", change).replace("self.head(x)", after)
    graph = exported(code, {"x": torch.rand(2, 32)}, ("y",), axes={0: "batch"})
    sample = keys.pop("sample", {"normal": [0, 1]})
    defaults: dict[str, Any] = {
        "axes": {"batch": {"min": 1, "typical": 4, "max": 16}},
        "inputs": [{"name": "x", "dtype": "float32", "shape": SHAPE, "sample": sample}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": SHAPE}],
        "verify": {"tolerance": {"cosine": 0.995}},
        "targets": {
            "ort": {
                "runtime": "onnxruntime",
                "precision": precision,
                **({} if precision["quantize"] == "int4-weights" else {"processors": processors}),
            }
        },
    }
    return write_recipe(folder, graph=graph, **defaults | keys)


def search(precision: dict[str, Any]) -> dict[str, Any]:
    return {"targets.ort.precision": precision | {"keep_float32": "auto"}}


PER_TENSOR = {"quantize": "dynamic-int8", "per_channel": False}
OUTLIER = "self.layers[1].dense.weight.data[3] *= 300"


@fault(
    code="N101",
    place="y",
    remedy="per_channel: true",
    change={"targets.ort.precision": {"quantize": "dynamic-int8", "per_channel": True}},
    repaired=True,
    source="ORT#9599",
)
def outlier_channel(folder: Path) -> Path:
    """one channel of a weight is 300 times the others: a single scale leaves them no bits"""
    return quantized(folder, OUTLIER, PER_TENSOR)


@fault(
    code="N101",
    place="y",
    remedy="keep_float32",
    change={"targets.ort.precision.keep_float32": ["layers.1.dense", "layers.*.", "layers.0"]},
    repaired=True,
    source="ORT#9599",
)
def outlier_weight(folder: Path) -> Path:
    """a single weight of 100 uses up the scale of the whole tensor"""
    return quantized(folder, "self.layers[1].dense.weight.data[3, 5] = 100.0", PER_TENSOR)


@fault(
    code="Q105",
    place="layers.3.dense",
    remedy="7-bit weights",
    change={"targets.ort.precision.reduce_range": True},
    repaired=True,
    source="ORT#6004",
)
def saturating_pairs(folder: Path) -> Path:
    """sums of two products of 8 bits are clipped on processors without VNNI, and only there"""
    eight = {"quantize": "dynamic-int8", "reduce_range": False}
    return quantized(folder, "pass", eight, processors="any")


STATIC = {"quantize": "static-int8", "calibration": {"file": "calibration.npz"}}


@fault(
    code="N101",
    place="y",
    remedy="dynamic-int8",
    change={"targets.ort.precision": {"quantize": "dynamic-int8"}},
    repaired=True,
    source="TRT#4730",
)
def samples_of_another_kind(folder: Path) -> Path:
    """Calibration samples a hundredth as large as real inputs: everything else is clipped"""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "calibration.npz",
        x=np.random.default_rng(0).normal(size=(16, 1, 32)).astype(np.float32) / 100,
    )
    return quantized(folder, "pass", STATIC)


@fault(
    code="Q106",
    place="*",
    remedy="calibrat",
    repaired="only better samples can fix it",
    source="ORT#9599",
)
def samples_of_zeros(folder: Path) -> Path:
    """the calibration file still holds placeholder zeros"""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "calibration.npz", x=np.zeros((16, 1, 32), np.float32))
    return quantized(folder, "pass", STATIC)


@fault(
    code="N101",
    place="y",
    remedy="equalize: true",
    change={"targets.ort.precision": {"quantize": "dynamic-int8", "equalize": True}},
    repaired=True,
    source="ORT#9599",
)
def sensitive_head(folder: Path) -> Path:
    """everything is quantized, even a head with one activation a thousand times the others"""
    change = (
        "self.scale = torch.ones(32); self.scale[5] = 1000; self.head.weight.data[:, 5] /= 1000"
    )
    return quantized(
        folder, change, {"quantize": "dynamic-int8"}, after="self.head(x * self.scale)"
    )


FOUR = {"quantize": "int4-weights", "block_size": 32}


@fault(code="N101", place="y", remedy="in float32", repaired=True, source="ORT#9599")
def four_bits_for_a_small_layer(folder: Path) -> Path:
    """weights of a small layer spread over five powers of ten within a block: four bits keep the
    largest
    """
    change = "self.layers[0].dense.weight.data *= torch.logspace(-4, 1, 32)[None, :]"
    return quantized(folder, change, FOUR, sample={"normal": [0, 1]})


@fault(
    code="Q101",
    place=None,
    remedy="keep_float32",
    repaired="you decide which modules to quantize",
    source="ORT#9599",
)
def nothing_left_to_quantize(folder: Path) -> Path:
    """the exceptions cover every layer, so the quantizer writes the model unchanged"""
    return quantized(folder, "pass", PER_TENSOR | {"keep_float32": ["layers", "head"]})


ONE_LAYER = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(32, 32, bias=False)
        self.dense.weight.data = torch.sin(torch.arange(1024.0) * 1.7).reshape(32, 32)

    def forward(self, x):
        return self.dense(x)

def build():
    return Net()
"""


def of_one_layer(folder: Path, scale: float, precise: float, tolerance: dict[str, float]) -> Path:
    """Write the layer, and a file of it whose weight is rounded in steps of `precise`, and read
    with `scale`.
    """
    exact = np.sin(np.arange(1024.0) * 1.7).reshape(32, 32).T
    stored = np.clip(np.round(exact / precise), -127, 127).astype(np.int8)
    nodes = [
        helper.make_node("DequantizeLinear", ["stored", "scale"], ["weight"], name="/dense/Read"),
        helper.make_node("MatMul", ["x", "weight"], ["y"], name="/dense/MatMul"),
    ]
    weights = [
        numpy_helper.from_array(stored, "stored"),
        numpy_helper.from_array(np.float32(scale), "scale"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, SHAPE)
    made = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    tensor = {"name": "x", "dtype": "float32", "shape": SHAPE, "sample": {"normal": [0, 1]}}
    return write_recipe(
        folder,
        code=ONE_LAYER,
        graph=model,
        axes={"batch": {"min": 1, "typical": 4, "max": 16}},
        inputs=[tensor],
        outputs=[{"name": "y", "dtype": "float32", "shape": SHAPE}],
        verify={"tolerance": tolerance},
    )


@fault(
    code="Q108", place="stored", remedy="Quantize", repaired=ADOPTED, source="sony/nnabla PR 674"
)
def reciprocal_of_a_scale(folder: Path) -> Path:
    """a converter wrote the reciprocal of a weight's scale"""
    return of_one_layer(
        folder, scale=127.0, precise=1 / 127, tolerance={"cosine": 0.999, "nrmse": 0.05}
    )


@fault(code="Q109", place="stored", remedy="tolerance", repaired=ADOPTED, source="ORT#9599")
def coarser_than_the_tolerance(folder: Path) -> Path:
    """a file in four bits is held to a tolerance that only floats can meet"""
    return of_one_layer(folder, scale=1 / 7, precise=1 / 7, tolerance={"max_abs": 1e-4})
