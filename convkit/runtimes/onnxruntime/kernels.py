"""Asks the installed onnxruntime whether it serves each operator of a graph: needs onnxruntime and
nothing else.

Every operator is a model of one node; what the runtime says when it opens it is the answer, on this
release and this provider. Nothing is kept by hand.
"""

import base64
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from convkit.codec import Json
from convkit.findings.model import Finding, Place, Remedy
from convkit.worker.operators import Operator, Operators

Problem = Literal["kernel", "disagreement", "type", "opset", "format", "operator"]

# What onnxruntime 1.17 to 1.31 say when they refuse a model, and what it means. Anything else is no
# answer to the question asked here: a node alone can miss what its graph would give it.
_SAYINGS: tuple[tuple[str, Problem], ...] = (
    (r"Unsupported model IR version", "format"),
    (r"Opset \d+ is under development|official released onnx opset versions", "opset"),
    (r"bound to different types", "disagreement"),
    (r"NOT_IMPLEMENTED|Could not find an implementation|Failed to find kernel", "kernel"),
    (
        (
            r"is not a registered function/op|No Op registered for|No opset import for domain|No"
            r" schema registered"
        ),
        "operator",
    ),
    (r"Type Error: Type '[^']*' of (input|output) parameter", "type"),
)
_CODES: dict[Problem, str] = {
    "kernel": "T101",
    "disagreement": "T102",
    "type": "T103",
    "opset": "V101",
    "format": "V102",
    "operator": "V103",
}
# The newest opset of ONNX's own operators that a release loads, as its refusal says.
_NEWEST_OPSET = re.compile(r"domain ai\.onnx is till opset (\d+)")
_MOST_NAMED = 5


@dataclasses.dataclass(frozen=True)
class Refusal:
    """One operator that the runtime does not serve; `message` is the runtime's own."""

    operator: Operator
    problem: Problem
    message: str


def check_operators(operators: Operators, provider: str) -> list[Finding]:
    """Return what this release refuses: T101 to T103, V101 to V103, one finding each; T104 for what
    was not checked.
    """
    if (told := _refusal(operators.empty, provider)) is not None and told[0] in ("opset", "format"):
        return [_too_new(operators, *told)]
    refusals = []
    for operator in operators.operators:
        if operator.probe is None:
            continue
        answer = _refusal(operator.probe, provider)
        if answer is not None:
            refusals.append(Refusal(operator, *answer))
    findings = [
        _finding(problem, [refusal for refusal in refusals if refusal.problem == problem], provider)
        for problem in dict.fromkeys(refusal.problem for refusal in refusals)
    ]
    unknown = [
        operator
        for operator in operators.operators
        if operator.unknown and "type" in operator.unknown
    ]
    return [*findings, *([_unchecked(unknown)] if unknown else [])]


def _refusal(probe: str, provider: str) -> tuple[Problem, str] | None:
    """Return what is wrong with a probe on this release, and its words; None where it opens or says
    something else.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # A node of constants would be computed away.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Where a provider of a device is asked for, nodes may still fall back to the CPU, as they do in
    # a real session.
    providers = list(dict.fromkeys([provider, "CPUExecutionProvider"]))
    try:
        onnxruntime.InferenceSession(base64.b64decode(probe), options, providers=providers)
    except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no common base
        message = str(error)
        for pattern, problem in _SAYINGS:
            if (match := re.search(pattern, message)) is not None:
                return problem, message[match.start() :].splitlines()[0].replace(
                    " node with name 'probe'", ""
                )
    return None


def _finding(problem: Problem, refusals: Sequence[Refusal], provider: str) -> Finding:
    first = refusals[0].operator
    nodes = sum(refusal.operator.count for refusal in refusals)
    kinds = list(
        dict.fromkeys(f"{refusal.operator.name} ({refusal.operator.types})" for refusal in refusals)
    )
    shown = ", ".join(kinds[:_MOST_NAMED]) + (
        f" and {len(kinds) - _MOST_NAMED} kinds more" if len(kinds) > _MOST_NAMED else ""
    )
    release = _release()
    what = {
        "kernel": f"onnxruntime {release} has no kernel on {provider} for",
        "disagreement": "element types disagree in",
        "type": "ONNX does not allow these element types for",
        "operator": f"onnxruntime {release} does not know",
    }[problem]
    where = f"first at {first.node or 'an unnamed node'}" + (
        f" in {first.module}" if first.module else ""
    )
    return Finding(
        _CODES[problem],
        f"{what} {nodes} node{'s' if nodes > 1 else ''}: {shown}; {where}",
        Place(node=first.node or None, module=first.module or None, source=first.source or None),
        _evidence(refusals),
        _remedy(problem, refusals),
    )


def _evidence(refusals: Sequence[Refusal]) -> dict[str, Json]:
    listed: list[Json] = [
        {
            "operator": refusal.operator.name,
            "types": refusal.operator.types,
            "nodes": refusal.operator.count,
            "first": refusal.operator.node,
            "module": refusal.operator.module,
            "message": refusal.message,
        }
        for refusal in refusals
    ]
    return {"release": _release(), "operators": listed}


def _remedy(problem: Problem, refusals: Sequence[Refusal]) -> Remedy:
    low = [refusal for refusal in refusals if "bfloat16" in refusal.operator.types]
    mixed = any("float16" in refusal.operator.types for refusal in refusals)
    match problem:
        case "kernel" if low:
            return Remedy(
                "Load the model in float32, and let the target's precision lower it where the"
                " device has kernels.",
                {"model.dtype": "float32"},
            )
        case "disagreement" | "type" if mixed:
            return Remedy(
                "Load the whole model in one type before the export; where a node mixes types on"
                " purpose, cast its operands in the model (in an RMSNorm, cast back before the"
                " weight is multiplied).",
                {"model.dtype": "float32"},
            )
        case "operator":
            return Remedy(
                "Export without the operator, or take a release of the runtime that has it, under"
                " tools."
            )
        case _:
            return Remedy(
                "Cast the operands to a type that the operator takes, or take another release or"
                " opset."
            )


def _too_new(operators: Operators, problem: Problem, message: str) -> Finding:
    release = _release()
    if problem == "format":
        return Finding(
            "V102",
            f"the file's IR version, {operators.ir_version}, is newer than onnxruntime {release}"
            f" reads: {message}",
            Place(),
            {"ir_version": operators.ir_version, "release": release},
            Remedy(
                "Export with exporter: torchscript, which writes an older one, or drop the"
                " release.",
                {"export.exporter": "torchscript"},
            ),
        )
    return Finding(
        "V101",
        f"the model's opset ({_opsets(operators)}) is newer than onnxruntime {release} loads:"
        f" {message}",
        Place(),
        {"opsets": _json(operators.opsets), "release": release},
        _older_opset(message),
    )


def _older_opset(message: str) -> Remedy:
    newest = _NEWEST_OPSET.search(message)
    if (
        newest is None
    ):  # another domain's is too new, and none says which of ai.onnx goes with an older one
        return Remedy(
            "Set export.opset to one that every release in the recipe loads, or drop the release."
        )
    return Remedy(
        f"Export with an older opset: {newest[1]} is the newest that this release loads. Or drop"
        " the release.",
        {"export.opset": int(newest[1])},
    )


def _json(opsets: Mapping[str, int]) -> Json:
    return dict(opsets)


def _opsets(operators: Operators) -> str:
    return ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in operators.opsets.items()
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


def _release() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)
