"""Faults of what a model does with its inputs: padding, batches, randomness, positions, weights it
was not given.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import torch
from onnx import helper, numpy_helper

from faults.corpus import fault
from faults.exporting import ONE_AT_A_TIME, exported
from faults.recipes import write_recipe
from faults.sizes import FLOATS
from faults.spans import ADOPTED, AXES, END, IDS, MASK, NAMES, NET, ROWS, SIGNATURE, START, net

MODEL = "the model itself does it; no conversion can fix that"
BERT = {
    "model_type": "bert",
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 100,
    "max_position_embeddings": 16,
}


MASKED_MEAN = "(x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)"
MASKED = NET.replace("torch.tanh(x + mean)", "torch.tanh(x + mean) * mask")
MEAN_OF_ALL = MASKED.replace(MASKED_MEAN, "x.mean(1, keepdim=True)")


@fault(
    code="N305",
    place="*_logits",
    remedy="applies its mask everywhere",
    repaired=MODEL,
    source="ORT#24263",
)
def mask_half_ignored(folder: Path) -> Path:
    """the model averages over the padding as well: padding changes the real positions"""
    outputs = [START | {"mask": "attention_mask"}, END | {"mask": "attention_mask"}]
    return write_recipe(folder, code=MEAN_OF_ALL, **SIGNATURE | {"outputs": outputs})


@fault(
    code="N306",
    place="*_logits",
    remedy="Raise every constant below 1.18e-38",
    repaired=MODEL,
    source="ORT#5117",
)
def denormal_eps(folder: Path) -> Path:
    """an eps of 1e-40, which float32 holds only as a denormal: flushed, it divides zero by zero"""
    code = NET.replace(
        "x = torch.tanh(x + mean)",
        "loud = torch.relu(x - 100.0)\n"
        "        x = torch.tanh(x + mean) + loud / (loud.sum(-1, keepdim=True) + 1e-40)",
    )
    return write_recipe(folder, code=code, **SIGNATURE)


@fault(
    code="N405",
    place="/ReduceMean",
    remedy="Correct the node",
    repaired=ADOPTED,
    source="ORT#13798",
)
def mask_lost_at_export(folder: Path) -> Path:
    """one of two uses of the mask was lost: full rows are right, padded ones are not"""
    return write_recipe(folder, code=MASKED, graph=net(code=MEAN_OF_ALL), **SIGNATURE)


CENTRED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        x = self.linear(x)
        return x - x.mean(1, keepdim=True)

def build():
    return Net()
"""
Y = {"name": "y", "dtype": "float32", "shape": [*ROWS, 3]}
TO_Y: dict[str, Any] = {"axes": AXES, "inputs": [FLOATS], "outputs": [Y]}


def to_y(code: str) -> onnx.ModelProto:
    return exported(code, {"x": torch.linspace(-1, 1, 48).reshape(2, 6, 4)}, ("y",), axes=NAMES)


@fault(
    code="N405", place="/ReduceMean", remedy="Correct the node", repaired=ADOPTED, source="ORT#6044"
)
def rows_depend_on_their_batch(folder: Path) -> Path:
    """a mean over each row became one over the whole batch: a row is right only when it is alone"""
    graph = to_y(CENTRED.replace("x.mean(1", "x.mean((0, 1)"))
    return write_recipe(folder, code=CENTRED, graph=graph, **TO_Y)


@fault(code="N303", place="y", remedy="random", repaired=ADOPTED, source="TRT#4730")
def random_results(folder: Path) -> Path:
    """the graph still adds training noise: two runs disagree"""
    graph = to_y(CENTRED.replace("x = self.linear(x)", "x = self.linear(x + torch.randn_like(x))"))
    return write_recipe(folder, code=CENTRED, graph=graph, **TO_Y)


@fault(code="N303", place="y", remedy="eval mode", repaired=MODEL, source="TRT#4798")
def random_original(folder: Path) -> Path:
    """the original itself is random, so nothing can match it"""
    noisy = CENTRED.replace("x = self.linear(x)", "x = self.linear(x + torch.randn_like(x))")
    return write_recipe(folder, code=noisy, **TO_Y)


@fault(code="N307", place="y", remedy="over the first", repaired=MODEL, source="ORT#6044")
def original_over_the_batch(folder: Path) -> Path:
    """the original subtracts a mean over the batch: a row's result depends on its neighbors"""
    over_all = CENTRED.replace("x.mean(1, keepdim=True)", "x.mean((0, 1), keepdim=True)")
    return write_recipe(folder, code=over_all, **TO_Y)


@fault(code="N303", place="*", remedy="in every call", repaired=MODEL, source="PT#110347")
def length_of_the_first_call(folder: Path) -> Path:
    """the original keeps the length of its first call and scales all later ones by it"""
    kept = CENTRED.replace(
        "x = self.linear(x)",
        "self.length = getattr(self, 'length', None) or x.shape[1]\n"
        "        x = self.linear(x) / self.length",
    )
    return write_recipe(folder, code=kept, **TO_Y)


@fault(code="N513", place="model.py:*", remedy="torch.where", repaired=MODEL, source="onnx#2836")
def branch_that_no_sample_takes(folder: Path) -> Path:
    """a trace keeps one side of a branch on values whose other side is beyond every sample"""
    branch = CENTRED.replace("x = self.linear(x)", "x = self.linear(x) if x.mean() < 1000 else -x")
    return write_recipe(folder, code=branch, graph=to_y(branch), **TO_Y)


@fault(code="N405", place="*", remedy="Correct the node", repaired=ADOPTED, source="ORT#10228")
def epsilon_of_a_norm_lost(folder: Path) -> Path:
    """a file divides by a norm without the epsilon: a row of zeros is NaN"""
    right = CENTRED.replace(
        "return x - x.mean(1, keepdim=True)", "return torch.nn.functional.normalize(x, dim=-1)"
    ).replace("Linear(4, 3)", "Linear(4, 3, bias=False)")
    wrong = right.replace(
        "torch.nn.functional.normalize(x, dim=-1)", "x / x.norm(dim=-1, keepdim=True)"
    )
    return write_recipe(folder, code=right, graph=to_y(wrong), **TO_Y)


@fault(code="Q104", place="w_quantized", remedy="axis", repaired=ADOPTED, source="ORT#9599")
def scales_along_the_wrong_axis(folder: Path) -> Path:
    """a square weight's scales belong to its columns and are applied along its rows"""
    weight = np.random.default_rng(0).normal(size=(64, 64)) * np.geomspace(0.01, 10, 64)
    scales = (np.abs(weight).max(0) / 127).astype(np.float32)
    quantized = np.round(weight / scales).astype(np.int8)
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["w_quantized", "scales"], ["w"], axis=0, name="/Dequantize"
        ),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    tensors = [
        numpy_helper.from_array(quantized, "w_quantized"),
        numpy_helper.from_array(scales, "scales"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 64])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 64])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    keys: dict[str, Any] = {
        "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
        "inputs": [
            {"name": "x", "dtype": "float32", "shape": ["batch", 64], "sample": {"normal": [0, 1]}}
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 64]}],
    }
    return write_recipe(folder, graph=model, **keys)


@fault(code="N206", remedy="module names", repaired=True, source="TRT#2564")
def misspelt_pattern(folder: Path) -> Path:
    """keep_float32 names a module that does not exist, so nothing is kept"""
    code = CENTRED.replace("self.linear", "self.norm_linear")
    target = {
        "runtime": "onnxruntime",
        "precision": {"default": "float16", "keep_float32": ["norm_liner"]},
    }
    keys: dict[str, Any] = {"targets": {"ort": target}, "verify": {"tolerance": {"max_abs": 0.05}}}
    return write_recipe(folder, code=code, **TO_Y, **keys)


POSITIONS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 8)
        self.positions = torch.nn.Embedding(8, 8)

    def forward(self, input_ids):
        return self.words(input_ids) + self.positions(torch.arange(input_ids.shape[1]))

def build():
    return Net()
"""


@fault(
    code="C113",
    place="sequence",
    remedy="axes",
    repaired="you decide which sizes must be served",
    source="PT#110347",
)
def more_positions_than_there_are(folder: Path) -> Path:
    """the recipe declares sequences of up to 12, but the model has 8 positions"""
    outputs = [{"name": "y", "dtype": "float32", "shape": [*ROWS, 8]}]
    return write_recipe(folder, code=POSITIONS, axes=AXES, inputs=[IDS], outputs=outputs)


def save_bert(folder: Path) -> None:
    """Save a tiny BERT without a head in transformers' layout, with random weights."""
    with ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        from transformers import AutoConfig, AutoModel  # here, since it takes seconds to import
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        torch.manual_seed(1)
        AutoModel.from_config(AutoConfig.for_model(**BERT)).save_pretrained(folder / "bert")


TINY = {
    "batch": {"min": 1, "typical": 2, "max": 3},
    "sequence": {"min": 2, "typical": 6, "max": 12},
}
WORDS = IDS | {"sample": "token_ids"}


@fault(
    code="C114",
    place="classifier",
    remedy="task",
    repaired="the weights are not in the checkpoint",
    source="OPT#1755",
)
def weights_never_loaded(folder: Path) -> Path:
    """the checkpoint has no classifier; transformers fills it with random numbers and continues"""
    save_bert(folder)
    logits = {"name": "logits", "dtype": "float32", "shape": ["batch", 2]}
    model = {"path": "bert", "task": "text-classification", "attn_implementation": "eager"}
    return write_recipe(folder, model=model, axes=TINY, inputs=[WORDS, MASK], outputs=[logits])


@fault(
    code="C111", place="token_type_ids", remedy="declare", repaired=True, source="OPT#1758, OPT#491"
)
def input_of_the_tokenizer(folder: Path) -> Path:
    """the tokenizer returns token_type_ids, but the recipe omits it: sentence pairs are wrong"""
    save_bert(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(95))]
    (folder / "bert" / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "bert" / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer"})
    )
    hidden = {"name": "last_hidden_state", "dtype": "float32", "shape": [*ROWS, 16]}
    model = {"path": "bert", "attn_implementation": "eager"}
    return write_recipe(folder, model=model, axes=TINY, inputs=[WORDS, MASK], outputs=[hidden])
