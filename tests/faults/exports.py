"""Faults of exporting and of what is done to the graph afterwards: modes, branches, fusions,
weights.
"""

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import torch
from onnx import helper, numpy_helper

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe
from faults.sizes import FLOATS
from faults.spans import ADOPTED, AXES, IDS, NAMES, ROWS

DROPOUT = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(self.first(x)))

def build():
    return Net()
"""
Y = {"name": "y", "dtype": "float32", "shape": [*ROWS, 3]}
SIGNATURE: dict[str, Any] = {"axes": AXES, "inputs": [FLOATS], "outputs": [Y]}


def features(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def trained(code: str) -> onnx.ModelProto:
    return exported(code, {"x": features(2, 6, 4)}, ("y",), axes=NAMES, training=True)


@fault(code="E207", place="/drop/Dropout", remedy="eval", repaired=ADOPTED, source="ORT#3873")
def dropout_left_on(folder: Path) -> Path:
    """exported in training mode: dropout draws anew at every call"""
    return write_recipe(folder, code=DROPOUT, graph=trained(DROPOUT), **SIGNATURE)


@fault(
    code="E207",
    place="/norm/BatchNormalization",
    remedy="eval",
    repaired=ADOPTED,
    source="ORT#3873",
)
def batch_norm_in_training(folder: Path) -> Path:
    """exported in training mode: batch norm uses the batch's mean, not the learned one"""
    norm = "torch.nn.Sequential(); self.norm = torch.nn.BatchNorm1d(8)"
    code = DROPOUT.replace("torch.nn.Dropout(0.5)", norm).replace(
        "self.drop(self.first(x))", "self.norm(self.first(x).transpose(1, 2)).transpose(1, 2)"
    )
    return write_recipe(folder, code=code, graph=trained(code), **SIGNATURE)


@fault(
    code="E207",
    place="*Dropout",
    remedy="training",
    repaired="the model's own code asks for dropout",
    source="ORT#3873",
)
def dropout_in_the_model_s_code(folder: Path) -> Path:
    """functional.dropout without training=self.training: eval() does not reach it"""
    code = DROPOUT.replace(
        "self.drop(self.first(x))", "torch.nn.functional.dropout(self.first(x), 0.5)"
    )
    return write_recipe(folder, code=code, **SIGNATURE)


BRANCHING = DROPOUT.replace(
    "return self.last(self.drop(self.first(x)))",
    """if x.mean() > 0:
            x = torch.relu(x) * 3
        return self.last(self.first(x))""",
)


@fault(
    code="E208",
    remedy="torch.where",
    repaired="the branch is in the model's own code",
    source="TF#36276",
)
def branch_folded_by_tracing(folder: Path) -> Path:
    """a branch on a tensor's values: TorchScript keeps the side that the example took"""
    return write_recipe(folder, code=BRANCHING, **SIGNATURE)


@fault(code="E208", remedy="torch.where", repaired=ADOPTED, source="ORT#17689")
def branch_folded_in_a_file(folder: Path) -> Path:
    """a file from a trace that kept one side of a branch for all inputs"""
    graph = exported(BRANCHING, {"x": -features(2, 6, 4).abs()}, ("y",), axes=NAMES)
    return write_recipe(folder, code=BRANCHING, graph=graph, **SIGNATURE)


@fault(
    code="E305",
    place="model.py:*",
    remedy="torch.where",
    repaired="the branch is in the model's own code",
    source="piper1-gpl#148, PT#153955",
)
def branch_refused(folder: Path) -> Path:
    """a branch on a tensor's values, which torch's exporter refuses as a guard on data"""
    return write_recipe(
        folder, code=BRANCHING, **SIGNATURE | {"export": {"exporter": "torch", "opset": 18}}
    )


@fault(
    code="E306",
    place="drop",
    remedy="eval()",
    repaired="a warning: you decide whether the dropout is meant",
    source="ORT#3873",
)
def dropout_in_training_mode(folder: Path) -> Path:
    """build() calls eval() before it adds the dropout, which stays in training mode"""
    code = DROPOUT.replace(
        "return Net()", "model = Net().eval()\n    model.drop.train()\n    return model"
    )
    return write_recipe(folder, code=code, **SIGNATURE)


RNN = "torch.nn.RNN(8, 8, batch_first=True)"
RECURRENT = DROPOUT.replace("torch.nn.Dropout(0.5)", RNN).replace(
    "self.drop(self.first(x))", "self.drop(self.first(x))[0]"
)


@fault(
    code="E301",
    place="drop",
    remedy="torchscript",
    change={"export.exporter": "torchscript"},
    repaired=True,
    source="PT#126339",
)
def recurrent_layer_unrolled(folder: Path) -> Path:
    """an nn.RNN, which torch's exporter unrolls over the example's length"""
    return write_recipe(
        folder, code=RECURRENT, **SIGNATURE | {"export": {"exporter": "torch", "opset": 18}}
    )


BRANCHING_ON_SIZE = DROPOUT.replace(
    "return self.last(self.drop(self.first(x)))",
    """y = self.last(self.first(x))
        return y * 2 if x.shape[0] * x.shape[1] > 20 else y""",
)


@fault(
    code="E302",
    place="model.py:*",
    remedy="torch.cond",
    repaired="the branch is in the model's own code",
    source="PT#110347",
)
def branch_on_a_product_of_sizes(folder: Path) -> Path:
    """a branch on batch times sequence, a guard that torch's exporter silently drops"""
    return write_recipe(
        folder, code=BRANCHING_ON_SIZE, **SIGNATURE | {"export": {"exporter": "torch", "opset": 18}}
    )


TIED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 16)
        self.middle = torch.nn.Linear(16, 16)

    def forward(self, input_ids):
        return torch.tanh(self.middle(self.words(input_ids))) @ self.words.weight.T

def build():
    return Net()
"""


@fault(
    code="E209",
    place="onnx::MatMul_*",
    remedy="stores tied weights once",
    repaired="a warning: the outputs are right, and the file is somebody's",
    source="TF#36276, OPT#2241",
)
def tied_weights_stored_twice(folder: Path) -> Path:
    """the embedding and the output layer share a weight, which is stored twice, once transposed"""
    graph = exported(TIED, {"input_ids": torch.arange(12).reshape(2, 6)}, ("logits",), axes=NAMES)
    logits = {"name": "logits", "dtype": "float32", "shape": [*ROWS, 50]}
    return write_recipe(folder, code=TIED, graph=graph, axes=AXES, inputs=[IDS], outputs=[logits])


IMAGES = {"batch": {"min": 1, "typical": 2, "max": 3}}
IMAGE = {
    "name": "x",
    "dtype": "float32",
    "shape": ["batch", 2, 6, 6],
    "sample": {"uniform": [-4, -1]},
}
POOLED = (
    '<ir_version: 8, opset_import: ["" : 17]> g (float[batch,2,6,6] x) => (float[batch,2,6,6] y)'
)
LEVELS = "optimization level none, or a different release of the runtime"


@fault(
    code="N401",
    remedy="optimization",
    change={"targets.ort.optimization": "none"},
    repaired=True,
    source="ORT#17689",
)
def fusion_that_loses_zeros(folder: Path) -> Path:
    """the runtime fuses Pad into MaxPool, which pads with minus infinity instead of zero"""
    nodes = (
        "{ p = Constant<value = int64[8] {0,0,1,1,0,0,1,1}>() z = Pad(x, p) y ="
        " MaxPool<kernel_shape=[3,3]>(z) }"
    )
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 2, 6, 6]}]
    graph = onnx.parser.parse_model(f"{POOLED} {nodes}")
    return write_recipe(folder, graph=graph, axes=IMAGES, inputs=[IMAGE], outputs=outputs)


@fault(
    code="N401",
    remedy="optimization",
    change={"targets.ort.optimization": "none"},
    repaired=True,
    source="OnnxSlim#277",
)
def fusion_that_overlooks_an_exponent(folder: Path) -> Path:
    """the runtime mistakes a norm by the fourth power for a layer norm"""
    code = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(1, 2, 4))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = torch.sqrt(centred.pow(4).mean(-1, keepdim=True) + 1e-5)
        return centred / scale * self.weight + self.weight

def build():
    return Net()
"""
    outputs = [{"name": "y", "dtype": "float32", "shape": [*ROWS, 4]}]
    return write_recipe(folder, code=code, axes=AXES, inputs=[FLOATS], outputs=outputs)


@fault(code="N407", place="first", remedy="connect", repaired=ADOPTED, source="TF#36276")
def constant_output(folder: Path) -> Path:
    """a trace of a model that returned a cached result: the output is always the example's"""
    graph = exported(DROPOUT, {"x": features(2, 6, 4)}, ("y",), axes=NAMES)
    graph.graph.initializer.append(numpy_helper.from_array(features(1, 1, 4).numpy(), "cached"))
    ones = [
        helper.make_node("Shape", ["x"], ["cached_shape"]),
        helper.make_node("Expand", ["cached", "cached_shape"], ["cached_x"]),
    ]
    for node in graph.graph.node:
        node.input[:] = ["cached_x" if name == "x" else name for name in node.input]
    for node in reversed(ones):
        graph.graph.node.insert(0, node)
    return write_recipe(folder, code=DROPOUT, graph=graph, **SIGNATURE)
