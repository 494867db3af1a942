"""A model's graph with what each node computes, beside what it should: for `convkit view`."""

import dataclasses
from typing import Literal

from convkit.protocol.contract import Contract, DType
from convkit.protocol.messages.model_request import Source

# original: the exported graph's own values, because its outputs agree with the original's ·
# corrected: the same, with its proven faults replaced by the original's values · matched: only the
# values that the original computes as well.
ViewBasis = Literal["original", "corrected", "matched"]


@dataclasses.dataclass(frozen=True)
class ViewRequest:
    """The nodes of a graph, and their errors in one case of the reference.

    `exported` and `reference` are the folders of those stages, `source` is the original. `built` is
    the folder of the target's files if they are an ONNX graph; without it, the exported graph is
    shown.
    """

    source: Source
    contract: Contract
    exported: str
    reference: str
    case: str
    built: str | None = None


@dataclasses.dataclass(frozen=True)
class ViewedNode:
    """One node. `reads` and `writes` are tensors, `module` and `source` its origin if recorded.

    `dtype` is the type it computes in, `shape` that of its first result in this case. `error` is
    the largest difference from the expected values, in parts of their root mean square; None if
    there is nothing to compare with. `lost`: NaN or infinity where a finite value is expected.
    `largest` is the largest expected magnitude, masks left out, and `headroom` how many times
    larger it could grow before it overflows `ViewResult.range_of`.
    """

    name: str
    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    module: str = ""
    source: str | None = None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    error: float | None = None
    lost: bool = False
    largest: float | None = None
    headroom: float | None = None


@dataclasses.dataclass(frozen=True)
class ViewResult:
    """A graph in execution order; `inputs` and `outputs` are its tensors.

    `shown` is which graph it is. `simulated`: the values are those of the simulation that rounds
    after every operator. `deviation` is the exported graph's largest output error, in parts of the
    original's root mean square, None if it is not finite. `basis` is what errors are measured
    against, `corrected_at` where a `corrected` graph had faults. `range_of` is the type that
    headroom refers to: the graph's low type, or float16.
    """

    nodes: tuple[ViewedNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shown: Literal["built", "exported"]
    simulated: bool
    basis: ViewBasis
    range_of: DType = "float16"
    deviation: float | None = None
    corrected_at: tuple[str, ...] = ()
