"""Small ONNX graphs in ONNX's text syntax, with a contract, for the tests."""

import json
from pathlib import Path

import onnx
import onnx.parser

from convkit.protocol.contract import Axis, Contract, Dimension, DType, TensorSpec
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Sample
from convkit.worker.original.contract_check import CONTRACT_KEY

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'

ROWS = ("batch", "sequence")


def tensor(name: str, dtype: DType = "float32", shape: tuple[Dimension, ...] = ROWS) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


# Three inputs of one type and shape, each used in its own way, as a BERT's are.
CONTRACT = Contract(
    inputs=(tensor("ids", "int64"), tensor("mask", "int64"), tensor("types", "int64")),
    outputs=(tensor("score"),),
    axes=(Axis("batch", 1, 2, 4), Axis("sequence", 2, 6, 12)),
)
SAMPLES = {
    "ids": Sample("integers", (1.0, 50.0)),
    "mask": Sample("padding_mask"),
    "types": Sample("integers", (0.0, 2.0)),
}

SIGNATURE = "(int64[batch,sequence] ids, int64[batch,sequence] mask, int64[batch,sequence] types)"


def body(ids: str = "ids", mask: str = "mask", types: str = "types") -> str:
    """Return `score = (ids + 100 * types) * mask`, computed from the named inputs."""
    return f"""{{
        i = Cast<to=1>({ids})
        m = Cast<to=1>({mask})
        t = Cast<to=1>({types})
        hundred = Constant<value_float=100.0>()
        scaled = Mul(t, hundred)
        sum = Add(i, scaled)
        score = Mul(sum, m)
    }}"""


def graph(
    signature: str = SIGNATURE,
    nodes: str | None = None,
    outputs: str = "float[batch,sequence] score",
) -> str:
    return f"{HEADER}g {signature} => ({outputs}) {nodes if nodes is not None else body()}"


def save(
    folder: Path, text: str, *, carries: Contract | None = CONTRACT, name: str = "model.onnx"
) -> Path:
    """Write a graph, with the contract that it carries; return its file."""
    model = onnx.parser.parse_model(text)
    if carries is not None:
        entry = model.metadata_props.add()
        entry.key, entry.value = CONTRACT_KEY, json.dumps(encode(carries))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / name)
    return folder / name
