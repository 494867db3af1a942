"""Asks the installed OpenVINO whether it supports each operator of a graph. Needs only openvino.

Each operator is converted and compiled as a one-node ONNX model; OpenVINO's response is the answer,
for this release and processor. No table is maintained by hand.
"""

import base64
import re
from collections.abc import Sequence
from typing import Literal

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.worker.runtime_interface.distinct_operators import Operators
from convkit.worker.runtime_interface.operator_refusals import (
    Refusal,
    refusal_finding,
    refusals,
    unchecked,
)

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


def check_operators(operators: Operators) -> list[Finding]:
    """Return what this release rejects, one finding each of V103, T102 and T101; T104 for operators
    that were not checked.
    """
    found = refusals(operators, _refusal)
    return [*map(_finding, found), *unchecked(operators)]


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


def _finding(refused: Sequence[Refusal[Problem]]) -> Finding:
    import openvino

    problem, release = refused[0].problem, str(openvino.__version__).partition("-")[0]
    what = {
        "operator": f"OpenVINO {release} does not know",
        "disagreement": "element types disagree in",
        "kernel": f"OpenVINO {release} has no kernel on the CPU for",
    }[problem]
    return refusal_finding(_CODES[problem], what, refused, release, Remedy(_REMEDIES[problem]))
