"""The operators of a graph as a file beside it: each distinct one as a model of one node. Standard
library only.

Written where the graph's tools are at hand, read where nothing but a runtime is.
"""

import dataclasses
import json
from pathlib import Path
from typing import Literal

from convkit.codec import CodecError, decode, encode
from convkit.worker.context import StageFailedError

OPERATORS_FILE = "operators.json"


@dataclasses.dataclass(frozen=True)
class Operator:
    """One operator as the graph uses it: the types of its operands and results, and how many nodes
    are like that.

    `types` is for people (`float16, float16 -> float16`). `probe` is a serialised model of this one
    node, in base64; None where one cannot be made, and `unknown` says why. `node`, `module` and
    `source` are those of the first.
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
    """`empty` is a model of the same opsets and IR version that does nothing: a runtime too old
    refuses it alone.
    """

    empty: str
    ir_version: int
    opsets: dict[str, int]
    operators: tuple[Operator, ...]


def low_type(operators: Operators | None) -> Literal["float16", "bfloat16"] | None:
    """Return the low float type that a graph computes in; None where it only casts to one, or
    nothing is known.
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


def write_operators(operators: Operators, folder: Path) -> None:
    """Write the file beside a model."""
    (folder / OPERATORS_FILE).write_text(
        json.dumps(encode(operators), indent=1) + "\n", encoding="utf-8"
    )


def read_operators(folder: Path) -> Operators | None:
    """Return what lies beside a model; None where nothing does. Raises StageFailedError for a
    damaged file.
    """
    file = folder / OPERATORS_FILE
    if not file.is_file():
        return None
    try:
        return decode(Operators, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise StageFailedError(f"{OPERATORS_FILE} cannot be read: {error}") from error
