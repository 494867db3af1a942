"""A sidecar file that lists a graph's distinct operators, each as a one-node model. Standard
library only.

Written by stages that have the graph's tools, read by stages that only have a runtime.
"""

import dataclasses
import json
from pathlib import Path
from typing import Literal

from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.worker.job_context import StageFailedError

OPERATORS_FILE = "operators.json"
# The oldest opset that onnxruntime implements as a whole (its docs/Versioning.md).
_OLDEST_OPSET = 7

# How the names of operators on 8-bit numbers begin, ONNX's and onnxruntime's own.
_QUANTIZED = (
    *("ConvInteger", "DequantizeLinear", "DynamicQuantize", "MatMulInteger"),
    *("QAttention", "QGemm", "QLinear"),
)


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator as the graph uses it: its operand and result types, and the number of such
    nodes.

    `types` is for display (`float16, float16 -> float16`). `probe` is a serialized, base64-encoded
    model of this one node, or None if it cannot be built; `unknown` then explains why. `node`,
    `module` and `source` describe the first such node.
    """

    name: str
    types: str
    count: int
    node: str
    module: str
    source: str
    probe: str | None
    unknown: str | None = None


@dataclasses.dataclass(frozen=True)
class Operators:
    """`empty` is an empty model with the same opsets and IR version. If a runtime refuses it, the
    runtime is too old.
    """

    empty: str
    ir_version: int
    opsets: dict[str, int]
    operators: tuple[Operator, ...]


def too_old(opset: int | None) -> str | None:
    """Return what to do about a file of an opset that no release of onnxruntime implements; None if
    the opset is not too old, or unknown.
    """
    if opset is None or opset >= _OLDEST_OPSET:
        return None
    return (
        f"the file has opset {opset}, and onnxruntime implements ONNX's operators from opset"
        f" {_OLDEST_OPSET} on: export it again, or convert it with"
        " onnx.version_converter.convert_version(model, 13) and compare the new file with the"
        " framework that the old one came from"
    )


def low_type(operators: Operators | None) -> Literal["float16", "bfloat16"] | None:
    """Return the low-precision float type the graph computes in; None if it only casts to one, or
    if unknown.
    """
    for operator in operators.operators if operators is not None else ():
        if operator.name in ("Cast", "CastLike"):
            continue
        given = operator.types.partition(" -> ")[2].split(", ")
        if "float16" in given:
            return "float16"
        if "bfloat16" in given:
            return "bfloat16"
    return None


def has_quantized_operators(operators: Operators | None) -> bool:
    """Return True if a graph has operators on quantized numbers; False if that is unknown."""
    return any(
        operator.name.rpartition(".")[2].startswith(_QUANTIZED)
        for operator in (operators.operators if operators is not None else ())
    )


def low_nodes(operators: Operators | None) -> int:
    """Return the number of nodes that read or produce a low-precision float type."""
    return sum(
        operator.count
        for operator in (operators.operators if operators is not None else ())
        if "float16" in operator.types
    )


def write_operators(operators: Operators, folder: Path) -> None:
    """Write the sidecar file next to a model."""
    (folder / OPERATORS_FILE).write_text(
        json.dumps(encode(operators), indent=1) + "\n", encoding="utf-8"
    )


def read_operators(folder: Path) -> Operators | None:
    """Read the sidecar file next to a model; None if there is none. Raises StageFailedError if it
    is damaged.
    """
    file = folder / OPERATORS_FILE
    if not file.is_file():
        return None
    try:
        return decode(Operators, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise StageFailedError(f"{OPERATORS_FILE} cannot be read: {error}") from error
