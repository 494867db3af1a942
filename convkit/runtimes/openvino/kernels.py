"""Asks the installed OpenVINO whether it supports each operator of a graph. Needs only openvino.

Each operator is converted and compiled as a one-node ONNX model; OpenVINO's response is the answer,
for this release and processor. No table is maintained by hand.
"""

import base64
import dataclasses
import re
from collections.abc import Sequence
from typing import Literal

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.worker.operators import Operator, Operators

Problem = Literal["operator", "disagreement", "kernel"]

# The messages with which OpenVINO 2025.0 to 2026.4 reject a node, and their meaning. Any other
# message is inconclusive: a node alone may lack something that its graph provides.
_SAYINGS: tuple[tuple[str, Problem], ...] = (
    (r"No conversion rule found for operations?[^\n]*", "operator"),
    (r"Arguments do not have the same element type[^\n]*", "disagreement"),
    (r"Unsupported operation of type[^\n]*", "kernel"),
    (r"cpu_convert can't convert[^\n]*", "kernel"),
)
_CODES: dict[Problem, str] = {"operator": "V103", "disagreement": "T102", "kernel": "T101"}
_REMEDIES: dict[Problem, str] = {
    "operator": (
        "Export with another opset or without the operator, use an OpenVINO release that converts"
        " it (tools.openvino), or serve the model with runtime: onnxruntime."
    ),
    "disagreement": (
        "Load the whole model in one type before the export; if a node mixes types on purpose, cast"
        " its operands in the model."
    ),
    "kernel": "Cast the operands to a type that the operator supports, or use another release.",
}
_MOST_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Refusal:
    """An operator that OpenVINO does not support; `message` is OpenVINO's."""

    operator: Operator
    problem: Problem
    message: str


def check_operators(operators: Operators) -> list[Finding]:
    """Return what this release rejects, one finding each of V103, T102 and T101; T104 for operators
    that were not checked.
    """
    refusals = [
        Refusal(operator, *answer)
        for operator in operators.operators
        if operator.probe is not None and (answer := _refusal(operator.probe)) is not None
    ]
    findings = [
        _finding(problem, [each for each in refusals if each.problem == problem])
        for problem in dict.fromkeys(refusal.problem for refusal in refusals)
    ]
    unknown = [each for each in operators.operators if each.unknown and "type" in each.unknown]
    return [*findings, *([_unchecked(unknown)] if unknown else [])]


def _refusal(probe: str) -> tuple[Problem, str] | None:
    """Return the problem with a probe, and OpenVINO's message; None if it is supported, or fails
    for another reason.
    """
    import openvino

    core = openvino.Core()
    try:
        core.compile_model(core.read_model(base64.b64decode(probe)), "CPU")
    except RuntimeError as error:
        for pattern, problem in _SAYINGS:
            if (match := re.search(pattern, str(error))) is not None:
                return problem, match[0].strip()
    return None


def _finding(problem: Problem, refusals: Sequence[Refusal]) -> Finding:
    import openvino

    release = str(openvino.__version__).partition("-")[0]
    first = refusals[0].operator
    nodes = sum(refusal.operator.count for refusal in refusals)
    kinds = list(
        dict.fromkeys(f"{each.operator.name} ({each.operator.types})" for each in refusals)
    )
    shown = ", ".join(kinds[:_MOST_NAMED])
    if len(kinds) > _MOST_NAMED:
        shown += f" and {len(kinds) - _MOST_NAMED} more kinds"
    what = {
        "operator": f"OpenVINO {release} does not know",
        "disagreement": "element types disagree in",
        "kernel": f"OpenVINO {release} has no kernel on the CPU for",
    }[problem]
    where = f"first at {first.node or 'an unnamed node'}"
    where += f" in {first.module}" if first.module else ""
    listed: list[Json] = [
        {
            "operator": each.operator.name,
            "types": each.operator.types,
            "nodes": each.operator.count,
            "first": each.operator.node,
            "module": each.operator.module,
            "message": each.message,
        }
        for each in refusals
    ]
    return Finding(
        _CODES[problem],
        f"{what} {nodes} node{'s' if nodes > 1 else ''}: {shown}; {where}",
        Place(node=first.node or None, module=first.module or None, source=first.source or None),
        {"release": release, "operators": listed},
        Remedy(_REMEDIES[problem]),
    )


def _unchecked(unknown: Sequence[Operator]) -> Finding:
    first, nodes = unknown[0], sum(operator.count for operator in unknown)
    return Finding(
        "T104",
        f"{nodes} nodes were not checked: {first.unknown} (first at {first.node or first.name})",
        Place(node=first.node or None, module=first.module or None),
        {"nodes": nodes},
        Remedy("Export with value types, or without operators of other domains."),
    )
