"""Faults of the contract: names, order, element types and shapes of inputs and outputs."""

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe
from faults.spans import (
    ADOPTED,
    AXES,
    END,
    IDS,
    MASK,
    NAMES,
    NET,
    ROWS,
    SIGNATURE,
    START,
    TYPES,
    net,
    rows,
)

UNDECLARED = "only you know its purpose and how its sizes vary"


@fault(
    code="C110",
    place="attention_mask",
    remedy="xchange these names",
    repaired=ADOPTED,
    source="TF#4523, PT#52667",
)
def exchanged_names(folder: Path) -> Path:
    """attention_mask and token_type_ids are swapped in the list of names passed to the exporter"""
    graph = net("input_ids", "token_type_ids", "attention_mask")
    inputs = list(graph.graph.input)
    del graph.graph.input[:]
    graph.graph.input.extend(
        [inputs[0], inputs[2], inputs[1]]
    )  # as the contract has them: only the meaning is wrong
    return write_recipe(folder, code=NET, graph=graph, **SIGNATURE)


@fault(
    code="C110",
    place="attention_mask",
    remedy="xchange these names",
    repaired=ADOPTED,
    source="triton-inference-server/server#4269",
)
def called_by_position(folder: Path) -> Path:
    """a serving wrapper calls the model by position, with token_type_ids second"""
    wrapper = f"""{NET}
class Served(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.net(input_ids, token_type_ids, attention_mask)

def serve():
    return Served()
"""
    return write_recipe(folder, code=NET, graph=net(code=wrapper, module="serve"), **SIGNATURE)


@fault(
    code="C103", place="attention_mask", remedy="in this order", repaired=True, source="TRT#3616"
)
def another_order(folder: Path) -> Path:
    """the graph's inputs are in a different order than the contract's; callers bind by position"""
    graph = net()
    inputs = list(graph.graph.input)
    del graph.graph.input[:]
    graph.graph.input.extend([inputs[0], inputs[2], inputs[1]])
    return write_recipe(folder, code=NET, graph=graph, **SIGNATURE)


@fault(
    code="C103",
    place="token_type_ids",
    remedy="in the model's order",
    repaired=True,
    source="ORT#24263",
)
def order_of_the_tokenizer(folder: Path) -> Path:
    """the recipe lists the inputs in the tokenizer's order, forward has a different one"""
    return write_recipe(
        folder, code=NET, axes=AXES, inputs=[IDS, TYPES, MASK], outputs=[START, END]
    )


@fault(
    code="C104",
    place="input_ids",
    remedy="use the model's name",
    change={"inputs.0.name": "input.1"},
    repaired=True,
    source="PT#165748",
)
def renamed_input(folder: Path) -> Path:
    """an export without names calls the first input input.1"""
    graph = net("input.1", "attention_mask", "token_type_ids")
    return write_recipe(folder, graph=graph, **SIGNATURE)


@fault(
    code="C101",
    place="token_type_ids",
    remedy="the step that lost",
    repaired="a repair never removes an input from the contract",
    source="PT#104949, OPT#491",
)
def dropped_input(folder: Path) -> Path:
    """TorchScript dropped an input that the model did not use; callers still feed it"""
    code = NET.replace(" + 2 * self.types(token_type_ids)", "")
    return write_recipe(folder, code=code, graph=net(code=code), **SIGNATURE)


@fault(
    code="C112",
    place="token_type_ids",
    remedy="remove",
    repaired="a warning: the model is right, and you decide which inputs callers pass",
    source="PT#104949",
)
def unused_input_kept(folder: Path) -> Path:
    """an input that never had an effect stays in the contract"""
    return write_recipe(
        folder,
        code=NET.replace(" + 2 * self.types(token_type_ids)", " + 0 * token_type_ids[..., None]"),
        **SIGNATURE,
    )


def _constant_types(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Let the graph read zeros, made at export, in place of token_type_ids, which nothing reads any
    more.
    """
    zeros = helper.make_tensor("zeros", TensorProto.INT64, [1, 1], [0])
    graph.graph.initializer.append(zeros)
    shaped = [
        helper.make_node("Shape", ["input_ids"], ["zeros_shape"]),
        helper.make_node("Expand", ["zeros", "zeros_shape"], ["constant_types"]),
    ]
    for node in graph.graph.node:
        node.input[:] = [
            "constant_types" if name == "token_type_ids" else name for name in node.input
        ]
    for node in reversed(shaped):
        graph.graph.node.insert(0, node)
    return graph


@fault(code="C108", place="token_type_ids", remedy="constant", repaired=ADOPTED, source="OPT#1758")
def token_types_made_constant(folder: Path) -> Path:
    """the export replaced token_type_ids with the example's zeros; the graph still lists it"""
    return write_recipe(folder, code=NET, graph=_constant_types(net()), **SIGNATURE)


@fault(
    code="C109",
    place="token_type_ids",
    remedy="separate tensor",
    repaired=ADOPTED,
    source="PT#52667",
)
def merged_inputs(folder: Path) -> Path:
    """the export got one tensor object for two inputs and merged them"""
    graph = net()
    for node in graph.graph.node:
        node.input[:] = [
            "attention_mask" if name == "token_type_ids" else name for name in node.input
        ]
    return write_recipe(folder, code=NET, graph=graph, **SIGNATURE)


@fault(code="C102", place="token_type_ids", remedy="declare", repaired=UNDECLARED, source="OPT#491")
def undeclared_input(folder: Path) -> Path:
    """the file wants token_type_ids, which the recipe does not have"""
    return write_recipe(folder, graph=net(), axes=AXES, inputs=[IDS, MASK], outputs=[START, END])


@fault(
    code="C102", place="token_type_ids", remedy="declare", repaired=UNDECLARED, source="OPT#1758"
)
def undeclared_parameter(folder: Path) -> Path:
    """forward needs token_type_ids, which the recipe does not have"""
    return write_recipe(folder, code=NET, axes=AXES, inputs=[IDS, MASK], outputs=[START, END])


@fault(
    code="C105",
    place="attention_mask",
    remedy="int32",
    change={"inputs.1.dtype": "int32"},
    repaired=True,
    source="OPT#223",
)
def int64_for_int32(folder: Path) -> Path:
    """the file expects its mask as int32; the recipe says int64"""
    graph = net()
    graph.graph.input[1].type.tensor_type.elem_type = TensorProto.INT32
    for node in graph.graph.node:
        node.input[:] = ["wide_mask" if name == "attention_mask" else name for name in node.input]
    graph.graph.node.insert(
        0, helper.make_node("Cast", ["attention_mask"], ["wide_mask"], to=TensorProto.INT64)
    )
    return write_recipe(folder, graph=graph, **SIGNATURE)


@fault(
    code="C105",
    place="input_ids",
    remedy="int64",
    change={"inputs.0.dtype": "int64"},
    repaired=True,
    source="OPT#627",
)
def int32_for_int64(folder: Path) -> Path:
    """the recipe says int32, like the application; the model's one_hot accepts only int64"""
    one_hot = "torch.nn.functional.one_hot(input_ids, 50).float() @ self.words.weight"
    code = NET.replace("self.words(input_ids)", one_hot)
    narrow = IDS | {"dtype": "int32"}
    return write_recipe(
        folder, code=code, axes=AXES, inputs=[narrow, MASK, TYPES], outputs=[START, END]
    )


@fault(
    code="C208",
    place="start_logits",
    remedy="xchange these names",
    repaired=ADOPTED,
    source="PT#165758",
)
def mislabeled_outputs(folder: Path) -> Path:
    """output names were passed by position: the dictionary's start_logits came out as end_logits"""
    graph = net(outputs=("end_logits", "start_logits"))
    first, second = graph.graph.output
    names = first.name, second.name
    outputs = [second, first]
    del graph.graph.output[:]
    graph.graph.output.extend(outputs)
    assert names == ("end_logits", "start_logits")
    return write_recipe(folder, code=NET, graph=graph, **SIGNATURE)


@fault(
    code="C203",
    place="start_logits",
    remedy="in this order",
    repaired=True,
    source="SuperPoint-SuperGlue-TensorRT#27",
)
def outputs_in_another_order(folder: Path) -> Path:
    """the engine's outputs are in a different order, and the caller reads them by position"""
    graph = net()
    outputs = list(graph.graph.output)
    del graph.graph.output[:]
    graph.graph.output.extend(reversed(outputs))
    return write_recipe(folder, code=NET, graph=graph, **SIGNATURE)


CACHE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.key = torch.nn.Linear(8, 8)
        self.value = torch.nn.Linear(8, 8)

    def forward(self, input_ids):
        x = self.words(input_ids)
        key, value = self.key(x), self.value(x)
        attended = torch.softmax(x @ key.transpose(1, 2), -1) @ value
        logits = attended @ self.words.weight.T
        return {"logits": logits, "present.0.key": key, "present.0.value": value}

def build():
    return Net()
"""
CACHED: dict[str, Any] = {
    "axes": AXES,
    "inputs": [IDS],
    "outputs": [
        {"name": "logits", "dtype": "float32", "shape": [*ROWS, 50]},
        {"name": "present.0.key", "dtype": "float32", "shape": [*ROWS, 8]},
        {"name": "present.0.value", "dtype": "float32", "shape": [*ROWS, 8]},
    ],
}


def cached(*outputs: str) -> onnx.ModelProto:
    return exported(CACHE, {"input_ids": rows(50)}, outputs, axes=NAMES)


@fault(
    code="C208",
    place="present.0.key",
    remedy="xchange these names",
    repaired=ADOPTED,
    source="PT#143576",
)
def cache_mislabeled(folder: Path) -> Path:
    """the names of a cache's keys and values were passed in the wrong order"""
    graph = cached("logits", "present.0.value", "present.0.key")
    outputs = list(graph.graph.output)
    del graph.graph.output[:]
    graph.graph.output.extend([outputs[0], outputs[2], outputs[1]])
    return write_recipe(folder, code=CACHE, graph=graph, **CACHED)


@fault(
    code="C204",
    place="present.0.key",
    remedy="use the model's name",
    repaired=True,
    source="TF#36276",
)
def cache_renamed(folder: Path) -> Path:
    """an upgrade renamed the cache's outputs"""
    graph = cached("logits", "present_key_values.0.key", "present_key_values.0.value")
    return write_recipe(folder, graph=graph, **CACHED)


LABELS = NET.replace(
    'return {"start_logits"',
    'return {"label": x.sum(-1).argmax(-1).to(torch.int32), "start_logits"',
)
LABEL = {"name": "label", "dtype": "int64", "shape": ["batch"]}


@fault(
    code="C205",
    place="label",
    remedy="int32",
    change={"outputs.0.dtype": "int32"},
    repaired=True,
    source="OPT#223",
)
def output_in_another_type(folder: Path) -> Path:
    """the label is int32, but the recipe says int64"""
    return write_recipe(
        folder, code=LABELS, axes=AXES, inputs=[IDS, MASK, TYPES], outputs=[LABEL, START, END]
    )


@fault(code="C207", place="label", remedy="shape", repaired=True, source="OPT#1755")
def output_in_another_shape(folder: Path) -> Path:
    """the recipe has one label per position, but the model returns one per row"""
    per_row = {"name": "label", "dtype": "int32", "shape": ROWS}
    return write_recipe(
        folder, code=LABELS, axes=AXES, inputs=[IDS, MASK, TYPES], outputs=[per_row, START, END]
    )


@fault(code="C202", place="end_logits", remedy="declare", repaired=UNDECLARED, source="PT#165758")
def undeclared_output(folder: Path) -> Path:
    """the file returns an extra output, which shifts those that are read by position"""
    return write_recipe(folder, graph=net(), axes=AXES, inputs=[IDS, MASK, TYPES], outputs=[START])
