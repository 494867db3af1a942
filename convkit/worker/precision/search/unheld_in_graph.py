"""The same of a graph's nodes: constants, inputs and results."""

from collections.abc import Container, Iterator, Mapping, Sequence

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.float_limits import LIMITS
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.diagnosis.unrepresentable_constants import (
    ConstantScan,
    scan_constants,
)
from convkit.worker.precision.lowering.precision_plan import Assignment
from convkit.worker.precision.search.unheld_values import MOST, unheld_inputs
from convkit.worker.precision.value_ranges import RangeReport


def unheld_in_graph(
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
            *unheld_inputs([each.feeds for each in cases.values()], low, users),
            *_results(report, made, low),
        )
    )
    return list(found)[:MOST]


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
