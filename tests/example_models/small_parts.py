"""A model of three parts as ONNX text: an encoder, a cell that runs once per step with a state, and
a head. The whole unrolls two steps. Faults are planted by editing the recipe or the text.
"""

import copy
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import yaml
from small_graphs import HEADER

STEPS = 2
_WEIGHTS = "<float[3,3] w = {0.5, -0.2, 0.1, 0.3, 0.4, -0.6, 0.2, 0.7, -0.3}>"

_ENCODED = "(float[batch,3] keys, float[batch,3] values)"
ENCODER = f"""{HEADER}g (float[batch,3] x) => {_ENCODED} {_WEIGHTS} {{
    keys = MatMul(x, w)
    values = Tanh(keys)
}}"""

# The note has an axis for the step, along which the notes of all passes are collected.
_READ = "float[batch,3] state, float[batch,3] keys, float[batch,3] values"
CELL = f"""{HEADER}g ({_READ}, float[one] rate, float[one] bias) =>
    (float[batch,3] next, float[batch,1,3] note) {{
    a = Mul(state, keys)
    b = Mul(values, rate)
    c = Add(a, b)
    next = Add(c, bias)
    flat = Sigmoid(next)
    at = Constant<value_ints=[1]>()
    note = Unsqueeze(flat, at)
}}"""

HEAD = f"""{HEADER}g (float[batch,3] state) => (float[batch,3] y) {{
    two = Constant<value_float=2.0>()
    y = Mul(state, two)
}}"""

# As the head's own preprocessing would be: a step that a caller could do a second time.
SCALE = f"""{HEADER}g (float[batch,3] raw) => (float[batch,3] scaled) {{
    factor = Constant<value_float=3.0>()
    one = Constant<value_float=1.0>()
    less = Sub(raw, one)
    scaled = Mul(less, factor)
}}"""


def whole(*, scaled: bool = False) -> str:
    """Return the graph of the whole; `scaled`: x is shifted and scaled first."""
    first = (
        """
    three = Constant<value_float=3.0>()
    unit = Constant<value_float=1.0>()
    less = Sub(x, unit)
    scaled = Mul(less, three)"""
        if scaled
        else "scaled = Identity(x)"
    )
    steps = "".join(
        f"""
    r{i} = Slice(rates, at{i}, at{i + 1}, first)
    o{i} = Slice(biases, at{i}, at{i + 1}, first)
    a{i} = Mul(s{i}, keys)
    b{i} = Mul(values, r{i})
    c{i} = Add(a{i}, b{i})
    s{i + 1} = Add(c{i}, o{i})
    n{i} = Sigmoid(s{i + 1})"""
        for i in range(STEPS)
    )
    at = ", ".join(f"int64[1] at{i} = {{{i}}}" for i in range(STEPS + 1))
    weights = f"{_WEIGHTS[:-1]}, {at}, int64[1] first = {{0}}, int64[1] middle = {{1}}>"
    inputs = f"float[batch,3] x, float[batch,3] start, float[{STEPS}] rates, float[{STEPS}] biases"
    outputs = f"float[batch,3] y, float[batch,{STEPS},3] notes"
    listed = ", ".join(f"m{i}" for i in range(STEPS))
    kept = "".join(f"\n    m{i} = Unsqueeze(n{i}, middle)" for i in range(STEPS))
    return f"""{HEADER}g ({inputs}) => ({outputs}) {weights} {{
    {first}
    keys = MatMul(scaled, w)
    values = Tanh(keys)
    s0 = Identity(start){steps}
    two = Constant<value_float=2.0>()
    y = Mul(s{STEPS}, two){kept}
    notes = Concat<axis=1>({listed})
}}"""


def tensor(name: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "dtype": "float32", "shape": list(shape)}


def _part(name: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": {"onnx": f"{name}.onnx"}, "inputs": inputs, "outputs": outputs}


ROW = ("batch", 3)
RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "small-parts",
    "original": {"onnx": "whole.onnx"},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "steps": {"min": STEPS, "typical": STEPS, "max": STEPS},
    },
    "parts": {
        "encoder": _part(
            "encoder", [tensor("x", *ROW)], [tensor("keys", *ROW), tensor("values", *ROW)]
        ),
        "cell": _part(
            "cell",
            [
                *(tensor(name, *ROW) for name in ("state", "keys", "values")),
                tensor("rate", 1),
                tensor("bias", 1),
            ],
            [tensor("next", *ROW), tensor("note", "batch", 1, 3)],
        ),
        "head": _part("head", [tensor("state", *ROW)], [tensor("y", *ROW)]),
    },
    "join": [
        {"call": "encoder"},
        {
            "loop": "steps",
            "feeds": {"cell.next": "cell.state"},
            "calls": [
                {
                    "call": "cell",
                    "inputs": {
                        "state": "start",
                        "keys": "encoder.keys",
                        "values": "encoder.values",
                        "rate": "rates",
                        "bias": "biases",
                    },
                }
            ],
        },
        {"call": "head", "inputs": {"state": "cell.next"}},
        {"return": {"notes": "cell.note"}},
    ],
    "inputs": [
        tensor("x", *ROW),
        tensor("start", *ROW),
        tensor("rates", "steps"),
        tensor("biases", "steps"),
    ],
    "outputs": [tensor("y", *ROW), tensor("notes", "batch", "steps", 3)],
    "verify": {"ladder": "quick"},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


def recipe() -> dict[str, Any]:
    """Return the sound recipe's content, to be edited."""
    return copy.deepcopy(RECIPE)


def write(folder: Path, content: dict[str, Any], **graphs: str) -> Path:
    """Write a recipe and its graphs; `graphs` replace the sound ones by part, or add to them."""
    folder.mkdir(parents=True, exist_ok=True)
    sound = {"whole": whole(), "encoder": ENCODER, "cell": CELL, "head": HEAD}
    for name, text in (sound | graphs).items():
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(copy.deepcopy(content), sort_keys=False))
    return path
