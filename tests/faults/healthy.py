"""Small models that are right, each of which might mislead a check."""

from pathlib import Path
from typing import Any

import onnx.parser

from faults.corpus import healthy
from faults.healthy_recipes import (
    BFLOAT16,
    BOTH,
    FLOAT16,
    LOW_TOLERANCE,
    MASK,
    ORT,
    POSITIONS,
    SIZES,
    floats,
    layers,
    module,
    right,
)
from faults.recipes import write_recipe

MLP = layers(
    "self.first = torch.nn.Linear(8, 32)\nself.second = torch.nn.Linear(32, 8)",
    "return self.second(torch.relu(self.first(x)))",
)


@healthy(tempts="a simulation of bfloat16, and of float16, beside the plain model")
def mlp_in_three_types(folder: Path) -> Path:
    """two linear layers, in float32, float16 and bfloat16"""
    return module(folder, MLP, targets=BOTH | {"brain": BFLOAT16})


@healthy(tempts="quantized layers have errors of their own")
def mlp_quantized(folder: Path) -> Path:
    """two linear layers in each kind of quantization"""
    close = {"tolerance": {"cosine": 0.99, "rms": 0.1}}  # of values whose rms is 0.3
    kinds: dict[str, Any] = {
        # With eight bits, they saturate on processors without VNNI.
        "dynamic": {"quantize": "dynamic-int8", "reduce_range": True},
        "static": {"quantize": "static-int8", "reduce_range": True},
    }
    kinds["four"] = {"quantize": "int4-weights", "block_size": 16}
    inputs = [
        floats("x", "sequence", 8, uniform=[-2, 2])
    ]  # beyond the calibrated range values are cut off
    return right(
        folder,
        MLP,
        inputs=inputs,
        targets={name: ORT | {"precision": kind} | close for name, kind in kinds.items()},
    )


@healthy(tempts="convolutions and a batch norm's statistics")
def convolutions(folder: Path) -> Path:
    """two convolutions with batch norm, pooling and a linear head"""
    code = layers(
        "self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8),"
        " torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 3),"
        " torch.nn.AdaptiveAvgPool2d(1))\nself.head = torch.nn.Linear(8, 5)",
        "return self.head(self.body(x).flatten(1))",
    )
    return module(folder, code, inputs=[floats("x", 3, 16, 16)], outputs=[floats("y", 5)])


@healthy(tempts="an operator with a state, which has no kernel in float16 on the CPU")
def lstm(folder: Path) -> Path:
    """an LSTM over the sequence"""
    return module(
        folder,
        layers("self.lstm = torch.nn.LSTM(8, 8, batch_first=True)", "return self.lstm(x)[0]"),
    )


@healthy(tempts="an output that the model computes and nobody uses")
def gru(folder: Path) -> Path:
    """a GRU over the sequence; its last state is not an output"""
    return module(
        folder, layers("self.gru = torch.nn.GRU(8, 8, batch_first=True)", "return self.gru(x)[0]")
    )


ATTENTION = "self.query = torch.nn.Linear(8, 8)\nself.key = torch.nn.Linear(8, 8)"
ATTEND = """scores = self.query(x) @ self.key(x).transpose(1, 2)
bias = torch.where(attention_mask[:, None, :] == 0, {dead}, 0.0)
return torch.softmax(scores + bias, -1) @ x"""
MASKED: dict[str, Any] = {
    "inputs": [floats("x", "sequence", 8), MASK],
    "outputs": [floats("y", "sequence", 8)],
}


def attending(dead: str) -> str:
    return layers(ATTENTION, ATTEND.format(dead=dead), "x, attention_mask")


@healthy(tempts="a constant outside float16's range that affects no output")
def lowest_mask_with_live_positions(folder: Path) -> Path:
    """an attention masked with float32's lowest value, with no fully masked row"""
    verify = {"tolerance": LOW_TOLERANCE, "skip": ["masked-row"]}
    return right(folder, attending("torch.finfo(torch.float32).min"), verify=verify, **MASKED)


@healthy(tempts="a mask that is finite")
def mask_of_minus_ten_thousand(folder: Path) -> Path:
    """an attention masked with -1e4, which float16 holds"""
    verify = {"tolerance": LOW_TOLERANCE, "skip": ["masked-row"]}  # where -1e4 swallows the scores
    return right(folder, attending("-1e4"), verify=verify, **MASKED)


@healthy(tempts="a constant beyond float16's range that bounds from above")
def clip_without_bound(folder: Path) -> Path:
    """values are clipped to [0, 3.4e38], which is just a relu"""
    return right(
        folder, MLP.replace("torch.relu(self.first(x))", "self.first(x).clamp(0.0, 3.4e38)")
    )


@healthy(tempts="an activation beyond float16's range, whose infinity is right")
def sigmoid_by_hand(folder: Path) -> Path:
    """1 / (1 + exp(-x)): exp overflows in float16, and 1 / infinity is the right zero"""
    code = MLP.replace("torch.relu(self.first(x))", "1 / (1 + torch.exp(-40 * self.first(x)))")
    return right(folder, code)


@healthy(tempts="outputs of zeros have no direction, and there is an overflow that does no harm")
def gated_zeros(folder: Path) -> Path:
    """the same as a gate over a fully masked row: all zeros"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)",
        "return self.linear(x) / (1 + torch.exp(-40 * x)) * attention_mask.unsqueeze(-1)",
        "x, attention_mask",
    )
    return right(
        folder, code, **MASKED | {"axes": SIZES | {"batch": {"min": 1, "typical": 1, "max": 1}}}
    )


@healthy(
    tempts="outputs of another direction, within the tolerance, and an overflow that does no harm"
)
def corrections_near_zero(folder: Path) -> Path:
    """corrections near zero, of which float16 keeps one digit: the recipe requires no more"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)",
        "gate = 1 / (1 + torch.exp(-40 * x))\nreturn (1 + 2e-3 * self.linear(x) * gate) - 1",
    )
    return right(folder, code, targets={"low": FLOAT16 | {"tolerance": {"max_abs": 0.004}}})


@healthy(tempts="an activation beyond float16's range, whose infinity is right")
def gelu_by_hand(folder: Path) -> Path:
    """GELU by its cubic inside a tanh: the cube overflows from 41 on, but the tanh is still one"""
    gelu = "0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x)))"
    inputs = [floats("x", "sequence", 8, uniform=[-60, 60])]
    code = layers("self.linear = torch.nn.Linear(8, 8)", f"x = {gelu}\nreturn self.linear(x) / 10")
    return right(folder, code, inputs=inputs)


@healthy(tempts="squares beyond float16's range, inside an operator that adds up in float32")
def layer_norm_of_large_values(folder: Path) -> Path:
    """a layer norm of values near 1000: one operator, whose squares are its own"""
    inputs = [floats("x", "sequence", 8, normal=[0, 1000])]
    return right(
        folder, layers("self.norm = torch.nn.LayerNorm(8)", "return self.norm(x)"), inputs=inputs
    )


@healthy(tempts="outputs that do not vary, as after a collapse")
def constant_outputs(folder: Path) -> Path:
    """half of one output is zeros, and another is the same for every input"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)\nself.register_buffer('scales', torch.linspace(0.5,"
        " 1, 8))",
        "y = torch.cat([self.linear(x), torch.zeros_like(x)], -1)\n"
        'return {"y": y, "scales": self.scales.expand(x.shape[0], 8)}',
    )
    return module(folder, code, outputs=[floats("y", "sequence", 16), floats("scales", 8)])


@healthy(tempts="zeros where nothing was found have no cosine")
def mostly_zeros(folder: Path) -> Path:
    """a detector whose threshold is rarely passed: most of its outputs are zeros"""
    code = layers("self.linear = torch.nn.Linear(8, 8)", "return torch.relu(self.linear(x) - 1.5)")
    return right(folder, code)


@healthy(tempts="a row's result depends on its batch, in the original too")
def centred_over_the_batch(folder: Path) -> Path:
    """the mean over the batch is subtracted, as in the original"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)",
        "x = self.linear(x)\nreturn x - 0.5 * x.mean(0, keepdim=True)",
    )
    return right(folder, code)


@healthy(tempts="no mask, so that each position matters")
def mean_without_a_mask(folder: Path) -> Path:
    """a mean over all positions"""
    code = layers("self.linear = torch.nn.Linear(8, 8)", "return self.linear(x).mean(1)")
    return right(folder, code, outputs=[floats("y", 8)])


@healthy(tempts="two outputs of one shape, near each other")
def start_and_end(folder: Path) -> Path:
    """two outputs of one shape, one of which is nearly the other"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 1)",
        'start = self.linear(x).squeeze(-1)\nreturn {"start": start, "end": start + 1e-6 *'
        " x[..., 0]}",
    )
    return module(folder, code, outputs=[floats("start", "sequence"), floats("end", "sequence")])


@healthy(tempts="swapping them makes no difference")
def symmetric_inputs(folder: Path) -> Path:
    """two interchangeable inputs: the model adds them"""
    code = layers("self.linear = torch.nn.Linear(8, 8)", "return self.linear(a + b)", "a, b")
    return module(folder, code, inputs=[floats("a", "sequence", 8), floats("b", "sequence", 8)])


@healthy(tempts="infinities in the original")
def scores_of_minus_infinity(folder: Path) -> Path:
    """padded positions get a score of minus infinity, as in the original"""
    score = 'self.linear(x).squeeze(-1).masked_fill(attention_mask == 0, float("-inf"))'
    code = layers("self.linear = torch.nn.Linear(8, 1)", f"return {score}", "x, attention_mask")
    return right(folder, code, **MASKED | {"outputs": [floats("y", "sequence")]})


@healthy(tempts="whole numbers that float16 could not hold, and need not")
def large_vocabulary(folder: Path) -> Path:
    """ids up to 100,000, and labels as whole numbers"""
    code = layers(
        "self.words = torch.nn.Embedding(100_000, 8)\nself.head = torch.nn.Linear(8,"
        " 3)\nself.head.bias.data *= 100",
        'scores = self.head(self.words(ids))\nreturn {"scores": scores, "labels":'
        " scores.argmax(-1)}",
        "ids",
    )
    ids = {
        "name": "ids",
        "dtype": "int64",
        "shape": POSITIONS,
        "sample": {"integers": [0, 100_000]},
    }
    labels = {"name": "labels", "dtype": "int64", "shape": POSITIONS}
    # Scores reach 35, where float16's steps are 0.03.
    low = FLOAT16 | {"tolerance": LOW_TOLERANCE | {"max_abs": 0.1}}
    outputs = [floats("scores", "sequence", 3), labels]
    return module(folder, code, inputs=[ids], outputs=outputs, targets={"ort": ORT, "low": low})


@healthy(tempts="float64 within")
def doubles_within(folder: Path) -> Path:
    """the norm is computed in float64"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)",
        "x = self.linear(x)\nreturn x / (1 + x.double().norm(dim=-1, keepdim=True).float())",
    )
    return right(folder, code)


@healthy(tempts="an output that is an input")
def passed_through(folder: Path) -> Path:
    """one output is an unchanged input"""
    code = layers(
        "self.linear = torch.nn.Linear(8, 8)", 'return {"y": self.linear(x), "kept": x * 1.0}'
    )
    return module(folder, code, outputs=[floats("y", "sequence", 8), floats("kept", "sequence", 8)])


@healthy(tempts="no axis varies, and an output has none")
def fixed_shapes(folder: Path) -> Path:
    """one image in, one number out"""
    code = layers("self.linear = torch.nn.Linear(8, 8)", "return self.linear(x).mean()")
    inputs = [{"name": "x", "dtype": "float32", "shape": [1, 8]}]
    return module(
        folder, code, inputs=inputs, outputs=[{"name": "y", "dtype": "float32", "shape": []}]
    )


@healthy(tempts="one weight twice")
def tied_weights(folder: Path) -> Path:
    """the embedding is the output layer too"""
    code = layers(
        "self.words = torch.nn.Embedding(2000, 8)",
        "return self.words(ids) @ self.words.weight.T",
        "ids",
    )
    ids = {"name": "ids", "dtype": "int64", "shape": POSITIONS, "sample": {"integers": [0, 2000]}}
    return module(folder, code, inputs=[ids], outputs=[floats("y", "sequence", 2000)])


@healthy(tempts="dropout, which does nothing in inference")
def dropout_in_inference(folder: Path) -> Path:
    """dropout between two layers, exported in inference mode"""
    return module(
        folder,
        MLP.replace(
            "torch.relu(self.first(x))",
            "torch.nn.functional.dropout(torch.relu(self.first(x)), 0.5, self.training)",
        ),
    )


def adopted(
    folder: Path, body: str, weights: str = "", *, functions: str = "", **keys: Any
) -> Path:
    """Write a graph in ONNX's text as its own original: x (batch x 4) in, y (batch x 4) out."""
    head = '<ir_version: 8, opset_import: ["": 17]> g (float[batch, 4] x) => (float[batch, 4] y)'
    graph = onnx.parser.parse_model(
        f"{head} <{weights}> {{ {body} }}" if weights else f"{head} {{ {body} }}"
    )
    sizes = {
        "axes": {"batch": SIZES["batch"]},
        "inputs": [floats("x", 4)],
        "outputs": [floats("y", 4)],
    }
    return write_recipe(folder, graph=graph, **sizes | {"targets": BOTH} | keys)


@healthy(tempts="a branch that most inputs do not take")
def branches(folder: Path) -> Path:
    """an If that looks at the sign of the sum"""
    body = """
        total = ReduceSum <keepdims = 0> (x)
        positive = Greater (total, zero)
        y = If (positive) <
            then_branch = then () => (float[batch, 4] a) { a = Mul (x, two) },
            else_branch = else () => (float[batch, 4] b) { b = Neg (x) }
        >
    """
    return adopted(folder, body, "float zero = {0}, float two = {2}")


@healthy(tempts="a body that runs several times")
def loops(folder: Path) -> Path:
    """a Loop that runs three times"""
    body = """
        y = Loop (count, go, x) <
            body = step (int64 i, bool go_in, float[batch, 4] state)
                => (bool go_out, float[batch, 4] next) {
                go_out = Identity (go_in)
                half = Mul (state, factor)
                next = Add (half, x)
            }
        >
    """
    return adopted(folder, body, "int64 count = {3}, bool go = {1}, float factor = {0.5}")


@healthy(tempts="an operator's second output, which nothing reads")
def unused_optional_output(folder: Path) -> Path:
    """TopK, of which only the values are taken, and a Split with a part that leads nowhere"""
    body = """
        values, indices = TopK (x, four)
        kept, rest = Split <axis = 1> (values, halves)
        y = Concat <axis = 1> (kept, kept)
    """
    return adopted(folder, body, "int64[1] four = {4}, int64[2] halves = {2, 2}")
