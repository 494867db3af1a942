"""Measures the range of every float tensor of a graph in one pass; no tensor leaves the graph.

For each tensor, the graph returns its maximum, minimum and sum. The largest magnitude follows from
the first two, and a finite sum proves that every element is finite. Only if a sum is not finite, a
second pass counts the non-finite elements and measures the finite ones. Tensors that only move
another's values (Reshape, Transpose) inherit its range without being measured.

The smallest nonzero magnitude takes four more operations, so it is measured only where a vanishing
value is harmful: divisors, and arguments of a logarithm, root, reciprocal or power. Elsewhere it is
known for tensors of one sign, and None for others.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import all_values, constant_tensor, is_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.constant_rounding import read_tensor
from convkit.worker.precision.tensor_statistics import (
    MOVING_OPERATORS,
    Key,
    Reductions,
    Statistic,
    StatisticsLayout,
    measurable_graphs,
    open_session,
)

_FLOATS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
# Operator and input where a zero or vanishing value does harm.
_SENSITIVE = frozenset({("Div", 1), ("Log", 0), ("Pow", 0), ("Reciprocal", 0), ("Sqrt", 0)})

_MASK_ELEMENTS = 1024  # larger constants are weights

Feeds = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TensorRange:
    """The range of one tensor over all cases; magnitudes are over finite elements.

    `largest` and `smallest` are magnitudes, `smallest` the smallest nonzero one (None: unknown, or
    all are zero); `lowest` and `highest` are signed. `nonfinite` counts elements over all cases.
    `case` is the case in which `largest` occurred. `masked`: `largest` is a mask's value, a
    constant of the graph beyond float16's range. `module` is empty for the root.
    """

    tensor: str
    node: str
    op: str
    module: str
    largest: float
    smallest: float | None
    lowest: float
    highest: float
    nonfinite: int
    case: str
    masked: bool

    def headroom(self, dtype: DType = "float16") -> float:
        """Return the factor by which the tensor could grow before it overflows; below 1, it
        overflows.
        """
        return _headroom(self.largest, dtype)

    def unmasked_headroom(self, dtype: DType = "float16") -> float:
        """Return the headroom on the side of zero without a mask; the same as `headroom` if there
        is not a mask.

        The simulation shows the effect of a mask that overflows; here, it would hide everything
        else.
        """
        if not self.masked:
            return self.headroom(dtype)
        return _headroom(
            max(self.highest, 0.0) if -self.lowest > self.highest else max(-self.lowest, 0.0), dtype
        )


@dataclasses.dataclass(frozen=True)
class UnmeasuredTensor:
    """A tensor that was not measured, and why."""

    tensor: str
    module: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ModuleHeadroom:
    """A module's smallest headroom over its own nodes' tensors, and that tensor."""

    module: str
    headroom: float
    tensor: str


@dataclasses.dataclass(frozen=True)
class RangeReport:
    """The measurements of a range pass in graph order, and the tensors it could not measure."""

    tensors: tuple[TensorRange, ...]
    unmeasured: tuple[UnmeasuredTensor, ...]

    def by_module(self, dtype: DType = "float16") -> tuple[ModuleHeadroom, ...]:
        """Return each module's headroom, excluding masks, smallest first."""
        worst: dict[str, ModuleHeadroom] = {}
        for tensor in self.tensors:
            found = ModuleHeadroom(tensor.module, tensor.unmasked_headroom(dtype), tensor.tensor)
            if tensor.module not in worst or found.headroom < worst[tensor.module].headroom:
                worst[tensor.module] = found
        return tuple(sorted(worst.values(), key=lambda row: row.headroom))


@dataclasses.dataclass(frozen=True)
class Instrumented:
    """A model with range outputs. `sources` maps every float tensor to the one measured for it."""

    model: ir.Model
    layout: StatisticsLayout
    sources: Mapping[str, str]
    unmeasured: tuple[UnmeasuredTensor, ...]


def instrument_ranges(model: ir.Model, *, doubtful: frozenset[str] | None = None) -> Instrumented:
    """Return a copy of a model that also outputs the range of every float tensor.

    Covers the main graph and the bodies of its If, Loop and Scan nodes; nested bodies are listed as
    unmeasured. With `doubtful`, only these tensors are measured, counting non-finite elements.
    """
    copy = prepare(model)
    reductions = Reductions(copy)
    graphs, deep = measurable_graphs(copy)
    sources: dict[str, str] = {}
    for graph in graphs:
        values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        floats = [
            value for value in values if value.dtype in _FLOATS and value.name and is_tensor(value)
        ]
        for value in [value for value in floats if constant_tensor(value) is None]:
            source = _source(value)
            if constant_tensor(source) is not None:
                continue
            name = sources[value.name or ""] = source.name or ""
            if source is value and (doubtful is None or name in doubtful):
                reductions.add(value, _statistics(value, counting=doubtful is not None))
    modules = dict(nodes_with_modules(copy))
    unmeasured = [
        UnmeasuredTensor(value.name or "", modules[node], "computed in a subgraph of a subgraph")
        for graph in deep
        for node in graph
        for value in node.outputs
        if value.dtype in _FLOATS and is_tensor(value)
    ]
    return Instrumented(copy, reductions.finish(), sources, tuple(unmeasured))


def run_ranges(
    path: Path, cases: Mapping[str, Feeds], *, threads: int | None = None
) -> RangeReport:
    """Measure the ranges of a model file over named cases (inputs by name), with onnxruntime on the
    CPU.
    """
    model = prepare(ir.load(path))
    instrumented = instrument_ranges(model)
    plain = _run(instrumented, path.parent, cases, threads)
    doubtful: dict[str, set[str]] = {}
    for case, numbers in plain.items():
        for (tensor, statistic), number in numbers.items():
            if statistic == "sum" and not math.isfinite(number):
                doubtful.setdefault(case, set()).add(tensor)
    counted: dict[str, dict[Key, float]] = {}
    if doubtful:
        again = instrument_ranges(model, doubtful=frozenset().union(*doubtful.values()))
        counted = _run(again, path.parent, {case: cases[case] for case in doubtful}, threads)
    merged = {case: numbers | counted.get(case, {}) for case, numbers in plain.items()}
    masks = _mask_magnitudes(prepare(load_model(path)))
    return RangeReport(tuple(_tensor_ranges(instrumented, merged, masks)), instrumented.unmeasured)


def _headroom(largest: float, dtype: DType) -> float:
    return LIMITS[dtype].largest / largest if largest else math.inf


def _statistics(value: ir.Value, *, counting: bool) -> tuple[Statistic, ...]:
    if counting:
        return "nonfinite", "finite_max", "finite_min"
    return ("max", "min", "sum", "smallest") if _is_sensitive(value) else ("max", "min", "sum")


def _is_sensitive(value: ir.Value) -> bool:
    for node, index in value.uses():
        if (node.op_type, index) in _SENSITIVE:
            return True
        if node.op_type in MOVING_OPERATORS and index == 0 and _is_sensitive(node.outputs[0]):
            return True
    return False


def _source(value: ir.Value) -> ir.Value:
    """Follow moved values back to the node that computed them, within one graph."""
    while (
        (node := value.producer()) is not None
        and node.op_type in MOVING_OPERATORS
        and node.domain == ""
    ):
        moved = node.inputs[0]
        if moved is None or moved.graph is not value.graph:
            break
        value = moved
    return value


def _run(
    instrumented: Instrumented, folder: Path, cases: Mapping[str, Feeds], threads: int | None
) -> dict[str, dict[Key, float]]:
    """Run the cases, fetching only the statistics, so that the model's own outputs are not
    copied.
    """
    session = open_session(instrumented.model, folder, threads)
    wanted = list(instrumented.layout.outputs)
    numbers = {}
    for case, feeds in cases.items():
        results = run_outputs(session, wanted, feeds) if wanted else []
        numbers[case] = instrumented.layout.read(dict(zip(wanted, results, strict=True)))
    return numbers


def _tensor_ranges(
    instrumented: Instrumented,
    numbers: Mapping[str, Mapping[Key, float]],
    mask_magnitudes: set[float],
) -> Iterable[TensorRange]:
    producers = {
        value.name: (node.name or "", node.op_type, module)
        for node, module in nodes_with_modules(instrumented.model)
        for value in node.outputs
    }
    masks = np.array(sorted(mask_magnitudes))
    for tensor, source in instrumented.sources.items():
        measured = {
            case: found for case, values in numbers.items() if (found := _extremes(source, values))
        }
        if not measured:
            continue  # in a branch that no case executed
        case, worst = max(measured.items(), key=lambda pair: pair[1].largest)
        known = [found.smallest for found in measured.values()]
        node, op, module = producers.get(tensor, ("", "input", ""))
        yield TensorRange(
            tensor=tensor,
            node=node,
            op=op,
            module=module,
            largest=worst.largest,
            smallest=(
                min((size for size in known if size is not None), default=None)
                if None not in known
                else None
            ),
            lowest=min(found.lowest for found in measured.values()),
            highest=max(found.highest for found in measured.values()),
            nonfinite=sum(found.nonfinite for found in measured.values()),
            case=case,
            # Values added to a mask vanish in its last digits.
            masked=bool(np.isclose(worst.largest, masks, rtol=1e-4, atol=0).any()),
        )


@dataclasses.dataclass(frozen=True)
class _Extremes:
    lowest: float
    highest: float
    smallest: float | None
    nonfinite: int

    @property
    def largest(self) -> float:
        return max(abs(self.lowest), abs(self.highest))


def _extremes(tensor: str, numbers: Mapping[Key, float]) -> _Extremes | None:
    """Return a tensor's extremes in one case; None if it was not computed."""
    if (tensor, "sum") not in numbers:
        return None
    if (tensor, "nonfinite") in numbers:
        low, high = numbers[tensor, "finite_min"], numbers[tensor, "finite_max"]
        return _Extremes(low, high, None, int(numbers[tensor, "nonfinite"]))
    low, high = numbers[tensor, "min"], numbers[tensor, "max"]
    if low > high:  # no elements: the maximum of an empty tensor is -inf
        return _Extremes(0.0, 0.0, None, 0)
    smallest = numbers.get((tensor, "smallest"))
    if smallest is None:
        smallest = low if low > 0 else -high if high < 0 else None
    elif math.isinf(smallest):
        smallest = None
    return _Extremes(low, high, smallest, 0)


def _mask_magnitudes(model: ir.Model) -> set[float]:
    """Return the magnitudes of the graph's small constants that are finite and beyond float16's
    range.
    """
    found: set[float] = set()
    for value in all_values(model):
        tensor = constant_tensor(value) if value.dtype == ir.DataType.FLOAT else None
        if tensor is not None and tensor.size <= _MASK_ELEMENTS:
            magnitudes = np.abs(read_tensor(tensor)).reshape(-1)
            beyond = magnitudes[
                np.isfinite(magnitudes) & (magnitudes >= LIMITS["float16"].overflows_from)
            ]
            found.update(float(number) for number in beyond)
    return found
