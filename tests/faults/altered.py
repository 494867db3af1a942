"""Faults of what is in a file and not in the original: stale or exchanged weights, operations
that a tool lost, values of one example, and elements of the wrong type.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe
from faults.sizes import FLOATS
from faults.spans import ADOPTED, AXES, IDS, NAMES, ROWS
from faults.versions import SIGNATURE as TO_FOUR
from faults.versions import graph as to_four

TWO = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x) * 0.5))

def build():
    return Net()
"""
Y = {"name": "y", "dtype": "float32", "shape": [*ROWS, 4]}
SIGNATURE: dict[str, Any] = {"axes": AXES, "inputs": [FLOATS], "outputs": [Y]}


def file(code: str = TWO) -> onnx.ModelProto:
    return exported(code, {"x": torch.linspace(-1, 1, 48).reshape(2, 6, 4)}, ("y",), axes=NAMES)


@fault(
    code="N403",
    place="second*",
    remedy="weight",
    repaired=ADOPTED,
    source="ORT#22244, onnxruntime_backend#124",
)
def weights_of_an_older_checkpoint(folder: Path) -> Path:
    """one layer in the file has the weights from before the last training"""
    graph = file()
    stored = graph.graph.initializer[1]
    older = numpy_helper.to_array(stored) + np.linspace(-0.4, 0.4, 16, dtype=np.float32).reshape(
        4, 4
    )
    stored.CopyFrom(numpy_helper.from_array(older, stored.name))
    return write_recipe(folder, code=TWO, graph=graph, **SIGNATURE)


@fault(code="N404", place="*", remedy="weight", repaired=ADOPTED, source="OnnxSlim#277")
def weights_of_two_layers_exchanged(folder: Path) -> Path:
    """a tool that renames weights exchanged those of two layers of one shape"""
    graph = file()
    first, second = graph.graph.initializer
    first.name, second.name = second.name, first.name
    return write_recipe(folder, code=TWO, graph=graph, **SIGNATURE)


@fault(
    code="N406", place="/first/MatMul", remedy="Add the missing", repaired=ADOPTED, source="CT#2680"
)
def factor_dropped(folder: Path) -> Path:
    """a converter dropped a factor, as alpha of addmm"""
    return write_recipe(folder, code=TWO, graph=file(TWO.replace(" * 0.5", "")), **SIGNATURE)


COUNTING = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 4)

    def forward(self, input_ids):
        return self.words(input_ids) * int(input_ids.max())

def build():
    return Net()
"""


@fault(
    code="E305",
    place="model.py:9",
    remedy="tensor",
    repaired="the int() is in the model's own code",
    source="idiap/coqui-ai-TTS PR 390",
)
def value_of_the_example(folder: Path) -> Path:
    """int() of a tensor: a trace keeps the number that the example gave"""
    return write_recipe(folder, code=COUNTING, axes=AXES, inputs=[IDS], outputs=[Y])


@fault(
    code="T103",
    place="sine",
    remedy="Cast",
    repaired="the file's element types are part of the file",
    source="ORT#4429, ORT PR 29214",
)
def operator_of_floats_on_integers(folder: Path) -> Path:
    """an operator that takes floats gets integers, which onnxruntime calls an invalid graph"""
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT64, name="cast"),
        helper.make_node("Sin", ["whole"], ["curve"], name="sine"),
        helper.make_node("Cast", ["curve"], ["y"], to=TensorProto.FLOAT, name="back"),
    ]
    return write_recipe(folder, graph=to_four(nodes), **TO_FOUR)


WRAPPED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(30, 4)

    def forward(self, input_ids):
        return self.words(input_ids % 30)

def build():
    return Net()
"""


@fault(
    code="C115",
    place="input_ids",
    remedy="Feed the input as the message says",
    repaired=ADOPTED,
    source="ORT#2080, ORT#18970",
)
def indices_beyond_the_table(folder: Path) -> Path:
    """the file lacks the step that keeps ids within the table: some legal inputs fail"""
    code = WRAPPED.replace(" % 30", "")
    graph = exported(code, {"input_ids": torch.arange(12).reshape(2, 6)}, ("y",), axes=NAMES)
    return write_recipe(folder, code=WRAPPED, graph=graph, axes=AXES, inputs=[IDS], outputs=[Y])


@fault(
    code="C201",
    place="pooled",
    remedy="output",
    repaired="only you know whether callers need it",
    source="huggingface/sentence-transformers#3258",
)
def pooling_left_out(folder: Path) -> Path:
    """the recipe promises pooled values, and the export has the layers before the pooling only"""
    pooled = {"name": "pooled", "dtype": "float32", "shape": ["batch", 4]}
    return write_recipe(folder, graph=file(), **SIGNATURE | {"outputs": [Y, pooled]})
