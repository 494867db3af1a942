"""The part of the build stage that lowers a graph's precision and reports the result."""

from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision
from convkit.worker.graph.typed_graph import UntypedValueError
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.constant_rounding import IR_DTYPES
from convkit.worker.precision.lowering.graph_conversion import convert_file
from convkit.worker.precision.lowering.precision_plan import Assignment, PrecisionPlan
from convkit.worker.precision.pattern_findings import unmatched_findings
from convkit.worker.precision.simulation.float32_graph import load_float32


def lower_file(source: Path, destination: Path, precision: LowPrecision) -> list[Finding]:
    """Write the graph in low precision, keeping inputs, outputs and metadata; see `convert_file`.
    One in another half-precision type is widened to float32 first.

    Findings: N206 for a pattern that names no module, N207 if there is nothing left to lower.
    Raises StageFailedError for a graph with unknown types.
    """
    plan = PrecisionPlan(precision.default, precision.patterns)
    try:
        model, _ = load_float32(source, precision.default)
        converted = convert_file(model, destination, plan, saturate=precision.saturate)
    except UntypedValueError as error:
        raise StageFailedError(str(error)) from error
    wanted = IR_DTYPES[precision.default]
    nodes = converted.conversion.model.graph.all_nodes()
    is_low = any(
        value.dtype == wanted for node in nodes for value in node.outputs
    )  # a third-party graph may already be in low precision
    return _plan_findings(converted.assignment, precision, is_low=is_low)


def _corrected_patterns(assignment: Assignment, precision: LowPrecision) -> dict[str, Json]:
    """Return the change that replaces patterns that name no module by the nearest names."""
    nearest = {each.pattern: each.nearest for each in assignment.unmatched if each.nearest}
    if not nearest:
        return {}
    kept = list(dict.fromkeys(nearest.get(pattern, pattern) for pattern in precision.patterns))
    written: dict[str, Json] = {"default": precision.default, "keep_float32": kept}
    return {"target.precision": written | ({"saturate": True} if precision.saturate else {})}


def _plan_findings(
    assignment: Assignment, precision: LowPrecision, *, is_low: bool
) -> list[Finding]:
    change = _corrected_patterns(assignment, precision)
    findings = unmatched_findings(assignment.unmatched, change=change)
    kinds = {choice.dtype for choice in assignment.choices.values()}
    if not is_low and kinds == {"float32"}:  # a graph of whole numbers has nothing to lower
        reasons = sorted({choice.reason for choice in assignment.choices.values()})
        why = "; ".join(reasons[:3])
        findings.append(
            Finding(
                "N207",
                f"no node of the graph computes in {precision.default}: {why}",
                Place(),
                {"reasons": list(reasons)},
                Remedy("Narrow keep_float32, or set precision: float32."),
            )
        )
    return findings
