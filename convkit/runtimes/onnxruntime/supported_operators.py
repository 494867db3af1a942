"""Asks the installed onnxruntime whether it supports each operator of a graph. Needs only
onnxruntime.

Each operator is loaded as a one-node model; the runtime's response is the answer, for this release
and provider. No table is maintained by hand.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.runtime_interface.distinct_operators import Operators, too_old
from convkit.worker.runtime_interface.operator_refusals import (
    Refusal,
    refusal_finding,
    refusals,
    unchecked,
)
from convkit.worker.runtime_interface.registered_operators import (
    declaring,
    is_custom,
    register_libraries,
)

Problem = Literal["kernel", "disagreement", "type", "opset", "format", "operator"]

# The messages with which onnxruntime 1.17 to 1.31 reject a model, and their meaning. Any other
# message is inconclusive: a node alone may lack something that its graph provides.
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
# The newest opset of ONNX's own operators that a release supports, as reported in its error.
_NEWEST_OPSET = re.compile(r"domain ai\.onnx is till opset (\d+)")


def check_operators(operators: Operators, provider: str) -> list[Finding]:
    """Return what this release rejects: T101 to T103, V101 to V103, one finding each; T104 for
    operators that were not checked.
    """
    if (too_new := _refusal(operators.empty, provider)) is not None and too_new[0] in (
        "opset",
        "format",
    ):
        return [_too_new(operators, *too_new)]
    found = refusals(operators, lambda probe: _refusal(probe, provider))
    opset = operators.opsets.get("")
    return [*(_finding(refused, provider, opset) for refused in found), *unchecked(operators)]


def _refusal(probe: str, provider: str) -> tuple[Problem, str] | None:
    """Return the problem with a probe on this release, and its message; None if it loads or fails
    for another reason.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Constant folding would remove a node of constants.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    register_libraries(options)
    # With a device's provider, nodes may still fall back to the CPU, as in a real session.
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


def _finding(refused: Sequence[Refusal[Problem]], provider: str, opset: int | None) -> Finding:
    problem, release = refused[0].problem, _release()
    what = {
        "kernel": f"onnxruntime {release} has no kernel on {provider} for",
        "disagreement": "element types disagree in",
        "type": "ONNX does not allow these element types for",
        "operator": f"onnxruntime {release} does not know",
    }[problem]
    return refusal_finding(
        _CODES[problem], what, refused, release, _remedy(problem, refused, opset)
    )


def _remedy(problem: Problem, refused: Sequence[Refusal[Problem]], opset: int | None) -> Remedy:
    low = [refusal for refusal in refused if "bfloat16" in refusal.operator.types]
    mixed = any("float16" in refusal.operator.types for refusal in refused)
    match problem:
        case "kernel" if (old := too_old(opset)) is not None:
            return Remedy(f"{old[0].upper()}{old[1:]}.")
        case "kernel" if low:
            return Remedy(
                "Load the model in float32, and let the target's precision lower the operators"
                " that the device has kernels for.",
                {"model.dtype": "float32"},
            )
        case "disagreement" | "type" if mixed:
            return Remedy(
                "Load the whole model in one type before the export. If a node mixes types on"
                " purpose, cast its operands in the model (in an RMSNorm, cast back before"
                " multiplying by the weight).",
                {"model.dtype": "float32"},
            )
        case "operator" if (custom := _custom(refused)) is not None:
            return Remedy(declaring(custom))
        case "operator":
            return Remedy(
                "Export without the operator, or pin a release of the runtime that has it under"
                " tools."
            )
        case _:
            return Remedy(
                "Cast the operands to a type that the operator supports, or use a different"
                " release or opset."
            )


def _custom(refused: Sequence[Refusal[Problem]]) -> str | None:
    """Return the first operator of a custom domain; None if there is none."""
    names = (each.operator.name for each in refused)
    return next((name for name in names if is_custom(name.rpartition(".")[0])), None)


def _too_new(operators: Operators, problem: Problem, message: str) -> Finding:
    release = _release()
    if problem == "format":
        return Finding(
            "V102",
            f"the file's IR version {operators.ir_version} is newer than onnxruntime {release} can"
            f" read: {message}",
            Place(),
            {"ir_version": operators.ir_version, "release": release},
            Remedy(
                "Export with exporter: torchscript, which writes an older format, or drop the"
                " release.",
                {"export.exporter": "torchscript"},
            ),
        )
    return Finding(
        "V101",
        f"the model's opset ({_opsets(operators)}) is newer than onnxruntime {release} can load:"
        f" {message}",
        Place(),
        {"opsets": _json(operators.opsets), "release": release},
        _older_opset(message, operators),
    )


def _older_opset(message: str, operators: Operators) -> Remedy:
    import onnx

    newest = _NEWEST_OPSET.search(message)
    if operators.opsets.get("", 0) > onnx.defs.onnx_opset_version():
        # Nothing can convert it: ONNX has no such opset, and its operators no definition.
        return Remedy(
            "Correct the file's opset_import: the installed ONNX does not have such an opset."
        )
    # None if another domain's opset is too new: no message tells which of ai.onnx goes with an
    # older one.
    if newest is None:
        return Remedy(
            "Set export.opset to one that every release in the recipe can load, or drop the"
            " release."
        )
    return Remedy(
        f"Export with an older opset ({newest[1]} is the newest that this release can load), or"
        " drop the release.",
        {"export.opset": int(newest[1])},
    )


def _json(opsets: Mapping[str, int]) -> Json:
    return dict(opsets)


def _opsets(operators: Operators) -> str:
    return ", ".join(
        f"{domain or 'ai.onnx'} {version}" for domain, version in operators.opsets.items()
    )


def _release() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)
