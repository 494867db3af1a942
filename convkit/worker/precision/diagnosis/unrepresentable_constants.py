"""How a low-precision type affects a graph's constants, without running it: overflow, underflow,
loss of precision, masks.

A constant that overflows is not necessarily a fault: a mask of float32's lowest value becomes -inf,
which is fine in a softmax over a row with one live position, but not in a product with zero. The
scan reports the effect on each constant and its consumers; the simulation shows whether it matters.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS, FloatLimits
from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.constant_rounding import read_tensor
from convkit.worker.precision.lowering.precision_plan import Assignment
from convkit.worker.precision.tensor_statistics import MOVING_OPERATORS

ConstantIssue = Literal["mask", "overflow", "nonfinite", "flushed", "subnormal"]


# A constant beyond the type's range is a mask if it replaces, offsets or bounds other values.
_MASKING = frozenset({"Add", "Clip", "Max", "Min", "Mul", "Sub", "Where"})
_SPREADING = MOVING_OPERATORS | {"Expand", "Tile", "ConstantOfShape"}
_CHUNK = 1 << 16  # elements processed at once: what fits in the L2 cache


@dataclasses.dataclass(frozen=True)
class Consumer:
    """A node that consumes a constant; `module` is empty for the root."""

    op: str
    node: str
    module: str


@dataclasses.dataclass(frozen=True)
class ConstantScan:
    """The effect of a low-precision type on one constant's elements.

    `zeros` are already zero. `overflowing` are finite and become infinite. `flushed` are nonzero
    and become zero (with their sign). `subnormal` lose digits. `nonfinite` are already non-finite.
    `largest` and `smallest` are magnitudes over finite and over nonzero elements (`smallest` only
    if an element is below the type's normal range). `extreme` is the overflowing element of the
    largest magnitude, with its sign. `is_mask`: all overflowing elements have the same value, and
    it replaces, offsets or bounds others.
    """

    constant: str
    elements: int
    zeros: int
    overflowing: int
    flushed: int
    subnormal: int
    nonfinite: int
    largest: float
    smallest: float | None
    is_mask: bool
    consumers: tuple[Consumer, ...]
    extreme: float | None = None

    @property
    def vanishes(self) -> bool:
        """True if only zeros are left of the constant, such as an epsilon that no longer guards
        anything.
        """
        return self.flushed > 0 and self.flushed + self.zeros == self.elements

    @property
    def issue(self) -> ConstantIssue | None:
        """The most severe issue found."""
        if self.overflowing:
            return "mask" if self.is_mask else "overflow"
        if self.nonfinite:
            return "nonfinite"
        if self.flushed:
            return "flushed"
        return "subnormal" if self.subnormal else None


def scan_constants(
    model: ir.Model, dtype: DType, assignment: Assignment | None = None
) -> tuple[ConstantScan, ...]:
    """Scan every float32 constant of a prepared model that is stored in float16 or bfloat16.

    With an assignment of this very model, only constants with low-precision consumers, and only
    these consumers, are considered. Returns the affected constants in graph order; weights are read
    one by one.
    """
    places = {
        node: Consumer(node.op_type, node.name or "", module)
        for node, module in nodes_with_modules(model)
    }

    def concerns(node: ir.Node) -> bool:
        choice = assignment.choices.get(node) if assignment is not None else None
        return assignment is None or (choice is not None and choice.dtype != "float32")

    found = []
    for value, tensor in _constants(model):
        fills = value.producer() is not None and value.producer().op_type == "ConstantOfShape"
        makers = [value.producer()] if fills else []
        users = list(dict.fromkeys([node for node, _ in value.uses()]))
        concerned = [node for node in makers or users if concerns(node)]
        if not concerned:
            continue
        scan = _scan(
            value,
            tensor,
            LIMITS[dtype],
            tuple(places[node] for node in (users if fills else concerned)),
        )
        if scan.issue is not None:
            found.append(scan)
    return tuple(found)


def _constants(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    for graph in model.graphs():
        made = [value for node in graph for value in node.outputs]
        for value in [*graph.initializers.values(), *made]:
            if value.dtype != ir.DataType.FLOAT:
                continue
            tensor = constant_tensor(value)
            producer = value.producer()
            if tensor is None and producer is not None and producer.op_type == "ConstantOfShape":
                fill = producer.attributes.get("value")  # zero if absent
                tensor = fill.as_tensor() if fill is not None else None
            if tensor is not None:
                yield value, tensor


def _scan(
    value: ir.Value, tensor: ir.TensorProtocol, limits: FloatLimits, consumers: tuple[Consumer, ...]
) -> ConstantScan:
    zeros = overflowing = flushed = subnormal = nonfinite = 0
    largest, smallest, extreme = 0.0, np.inf, 0.0
    beyond: set[float] = set()
    for chunk in _chunks(read_tensor(tensor)):
        magnitude = np.abs(chunk)
        is_large = ~(magnitude < limits.overflows_from)  # also True for NaN
        if is_large.any():
            is_finite = np.isfinite(magnitude)
            nonfinite += int(np.count_nonzero(~is_finite))
            outside = chunk[is_large & is_finite]
            overflowing += outside.size
            beyond |= {float(number) for number in np.unique(outside)[:3]}
            extreme = max(
                extreme,
                float(outside.flat[np.abs(outside).argmax()]) if outside.size else 0.0,
                key=abs,
            )
            magnitude = magnitude[is_finite]
        small = magnitude[magnitude < limits.smallest_normal]
        nonzero = small[small > 0]
        zeros += small.size - nonzero.size
        vanishing = int(np.count_nonzero(nonzero <= limits.vanishes_up_to))
        flushed += vanishing
        subnormal += nonzero.size - vanishing
        largest = max(largest, float(magnitude.max(initial=0.0)))
        smallest = min(smallest, float(nonzero.min(initial=np.inf)))
    return ConstantScan(
        constant=value.name or "",
        elements=tensor.size,
        zeros=zeros,
        overflowing=overflowing,
        flushed=flushed,
        subnormal=subnormal,
        nonfinite=nonfinite,
        largest=largest,
        smallest=None if np.isinf(smallest) else smallest,
        is_mask=len(beyond) == 1 and _masks(value),
        consumers=consumers,
        extreme=extreme if overflowing else None,
    )


def _chunks(array: np.ndarray) -> Iterable[np.ndarray]:
    flat = array.reshape(-1)
    return (flat[start : start + _CHUNK] for start in range(0, flat.size, _CHUNK))


def _masks(value: ir.Value) -> bool:
    """Return True if a constant reaches a masking operator, directly or expanded to a shape."""
    for node, _ in value.uses():
        if node.op_type in _MASKING or (node.op_type in _SPREADING and _masks(node.outputs[0])):
            return True
    return False
