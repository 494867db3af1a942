"""What a low-precision type cannot hold of what a plan keeps in float32: why it may be kept."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.messages import LowPrecision, ModulePrecision
from convkit.protocol.module_naming import module_at
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.diagnosis.unrepresentable_constants import (
    ConstantScan,
    scan_constants,
)
from convkit.worker.precision.lowering.precision_plan import Assignment
from convkit.worker.precision.value_ranges import RangeReport

_MOST = 2


def unheld_values(
    model: ir.Model, assignment: Assignment, report: RangeReport, cases: Mapping[str, JudgedCase]
) -> list[str]:
    """Return the constants, inputs and measured results that patterns keep in float32 and that the
    plan's type cannot hold, each in words, in this order; two at most.
    """
    kept = [
        node for node, choice in assignment.choices.items() if choice.reason.startswith("pattern ")
    ]
    low = assignment.plan.default
    users = {_name(value): node.op_type for node in kept for value in node.inputs}
    made = {_name(value) for node in kept for value in node.outputs}
    found = dict.fromkeys(
        (
            *_constants(scan_constants(model, low), users),
            *_inputs([each.feeds for each in cases.values()], low, users),
            *_results(report, made, low),
        )
    )
    return list(found)[:_MOST]


def unheld_of_modules(
    modules: Sequence[ModulePrecision],
    precision: LowPrecision,
    cases: Mapping[str, Mapping[str, np.ndarray]],
) -> list[str]:
    """Return the same of modules that are kept whole, and of the inputs of any of these."""
    kept = [row for row in modules if row.float32 and not row.low]
    low = precision.default
    beyond = sorted(
        (row for row in kept if row.headroom is not None and row.headroom < 1),
        key=lambda row: row.headroom or 0.0,
    )
    inputs = _inputs(cases.values(), low) if kept else ()
    results = (f"{row.largest:.6g}, a result of {module_at(row.module)}" for row in beyond)
    return list(dict.fromkeys((*inputs, *results)))[:_MOST]


def _inputs(
    cases: Iterable[Mapping[str, np.ndarray]], low: DType, users: Container[str] | None = None
) -> Iterator[str]:
    largest: dict[str, float] = {}
    for name, values in (pair for feeds in cases for pair in feeds.items()):
        if values.dtype == np.float32 and (users is None or name in users):
            reached = float(
                np.abs(values, where=np.isfinite(values), out=np.zeros_like(values)).max()
            )
            largest[name] = max(reached, largest.get(name, 0.0))
    for name, reached in largest.items():
        if reached > LIMITS[low].largest:
            yield f"{reached:.6g}, a value of the input {name!r}"


def _name(value: ir.Value | None) -> str:
    return "" if value is None else value.name or ""


def _constants(scans: Sequence[ConstantScan], users: Mapping[str, str]) -> Iterator[str]:
    for scan in scans:
        overflows = scan.issue == "overflow"
        number = scan.extreme if overflows else scan.smallest
        if scan.constant in users and number is not None and (overflows or scan.vanishes):
            yield f"{number:.6g}, a constant of {users[scan.constant]}"


def _results(report: RangeReport, made: Container[str], low: DType) -> Iterator[str]:
    beyond = [
        tensor
        for tensor in report.tensors
        if tensor.tensor in made and not tensor.masked and tensor.largest > LIMITS[low].largest
    ]
    for tensor in sorted(beyond, key=lambda tensor: -tensor.largest):
        yield f"{tensor.largest:.6g}, a result of {tensor.op}"
