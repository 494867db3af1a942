"""A decoder of two layers with caches, and a cell with two states, as ONNX text: small enough that
a whole loop takes milliseconds. Faults are planted by editing the text.
"""

import numpy as np
from small_graphs import tensor

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import Feed, Sample, Steps

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
WIDTH, WORDS = 4, 13
_TYPE = f"float[batch,past,{WIDTH}]"
_GROWN = f"float[batch,total,{WIDTH}]"
CACHE = ("0.key", "0.value", "1.key", "1.value")


def _matrix(name: str, *shape: int) -> str:
    """Return a constant whose values are as random as they are reproducible."""
    seed = sum(map(ord, name))
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    listed = ", ".join(f"{value:.6f}" for value in values.reshape(-1))
    return f"float[{','.join(map(str, shape))}] {name} = {{{listed}}}"


def _layer(number: int, read: str, write: str, *, keys: str, values: str) -> str:
    """Return one layer: attention over what is fed and what the call adds."""
    n = number
    return f"""
        k_{n} = MatMul({read}, wk_{n})
        v_{n} = MatMul({read}, wv_{n})
        q_{n} = MatMul({read}, wq_{n})
        present_{n}_key = Concat<axis=1>({keys}, k_{n})
        present_{n}_value = Concat<axis=1>({values}, v_{n})
        kt_{n} = Transpose<perm=[0, 2, 1]>(present_{n}_key)
        s_{n} = MatMul(q_{n}, kt_{n})
        m_{n} = Add(s_{n}, bias)
        p_{n} = Softmax<axis=-1>(m_{n})
        a_{n} = MatMul(p_{n}, present_{n}_value)
        {write} = Add({read}, a_{n})
    """


def decoder() -> str:
    """Return tokens, mask, positions and caches in; scores and caches out.

    A token sees the real tokens up to its own place; positions are added to the embeddings.
    """
    weights = [_matrix("table", WORDS, WIDTH), _matrix("places", 64, WIDTH)]
    weights += [_matrix(f"w{kind}_{n}", WIDTH, WIDTH) for kind in "qkv" for n in (0, 1)]
    weights += [_matrix("head", WIDTH, WORDS)]
    weights += ["int64[1] last = {2}", "int64[1] second = {1}", "int64 one = {1}"]
    weights += ["int64 zero = {0}", "float low = {-1e9}", "float none = {0}"]
    inputs = "int64[batch,sequence] ids, int64[batch,total] mask, int64[batch,sequence] positions"
    past = ", ".join(f"{_TYPE} past_{name.replace('.', '_')}" for name in CACHE)
    present = ", ".join(f"{_GROWN} present_{name.replace('.', '_')}" for name in CACHE)
    scores = f"float[batch,sequence,{WORDS}] logits"
    body = f"""
        words = Gather(table, ids)
        places_here = Gather(places, positions)
        x = Add(words, places_here)
        size = Shape<start=1, end=2>(mask)
        length = Squeeze(size)
        new = Shape<start=1, end=2>(ids)
        added = Squeeze(new)
        before = Sub(length, added)
        columns = Range(zero, length, one)
        rows = Range(before, length, one)
        rows_2 = Unsqueeze(rows, second)
        seen = LessOrEqual(columns, rows_2)
        real_2 = Cast<to=9>(mask)
        real = Unsqueeze(real_2, second)
        both = And(seen, real)
        bias = Where(both, none, low)
        {_layer(0, "x", "y", keys="past_0_key", values="past_0_value")}
        {_layer(1, "y", "z", keys="past_1_key", values="past_1_value")}
        logits = MatMul(z, head)
    """
    return (
        f"{HEADER}g ({inputs}, {past}) => ({scores}, {present}) <{', '.join(weights)}>\n{{{body}}}"
    )


def _cached(name: str, length: str) -> tuple[str, tuple[str | int, ...]]:
    return name.replace(".", "_"), ("batch", length, WIDTH)


DECODER = Contract(
    inputs=(
        tensor("ids", "int64"),
        tensor("mask", "int64", ("batch", "past + sequence")),
        tensor("positions", "int64"),
        *(
            tensor(f"past_{name}", shape=shape)
            for name, shape in (_cached(c, "past") for c in CACHE)
        ),
    ),
    outputs=(
        tensor("logits", shape=("batch", "sequence", WORDS)),
        *(
            tensor(f"present_{name}", shape=shape)
            for name, shape in (_cached(c, "past + sequence") for c in CACHE)
        ),
    ),
    axes=(Axis("batch", 1, 2, 4), Axis("sequence", 1, 4, 8), Axis("past", 0, 4, 12)),
)
DECODER_SAMPLES = {
    "ids": Sample("integers", (0.0, float(WORDS))),
    "mask": Sample("padding_mask"),
    "positions": Sample("positions"),
}
DECODER_STEPS = Steps(
    feeds=tuple(
        Feed(f"present_{c.replace('.', '_')}", f"past_{c.replace('.', '_')}", int(c[0]), c[2:])
        for c in CACHE
    ),
    axis="sequence",
    grows=("past",),
    prefill=5,
    stride=1,
    count=4,
    full=True,
    mask="mask",
    positions=("positions",),
    tokens="ids",
    scores="logits",
)


def cell(state: str = "h", memory: str = "c") -> str:
    """Return a cell with two states, which takes one chunk per call."""
    weights = [_matrix("wx", 3, WIDTH), _matrix("wh", WIDTH, WIDTH), _matrix("wc", WIDTH, WIDTH)]
    inputs = f"float[batch,3] x, float[batch,{WIDTH}] h, float[batch,{WIDTH}] c"
    outputs = f"float[batch,{WIDTH}] y, float[batch,{WIDTH}] h_out, float[batch,{WIDTH}] c_out"
    body = f"""
        a = MatMul(x, wx)
        b = MatMul({state}, wh)
        d = MatMul({memory}, wc)
        e = Add(a, b)
        f = Add(e, d)
        h_out = Tanh(f)
        g = Sigmoid(f)
        c_out = Mul(g, {memory})
        y = Add(h_out, c_out)
    """
    return f"{HEADER}g ({inputs}) => ({outputs}) <{', '.join(weights)}>\n{{{body}}}"


CELL = Contract(
    inputs=(
        tensor("x", shape=("batch", 3)),
        tensor("h", shape=("batch", WIDTH)),
        tensor("c", shape=("batch", WIDTH)),
    ),
    outputs=(
        tensor("y", shape=("batch", WIDTH)),
        tensor("h_out", shape=("batch", WIDTH)),
        tensor("c_out", shape=("batch", WIDTH)),
    ),
    axes=(Axis("batch", 1, 2, 4),),
)
CELL_STEPS = Steps(
    feeds=(Feed("h_out", "h", None, "h"), Feed("c_out", "c", None, "c")),
    axis=None,
    grows=(),
    prefill=1,
    stride=1,
    count=4,
    full=True,
)
