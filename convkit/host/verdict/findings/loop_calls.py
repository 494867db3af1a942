"""Findings on models that are called in a loop: proven causes, and generated tokens."""

from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import limits_for
from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import GreedyRow, StepTrial, VerifyResult, call_name, is_step
from convkit.protocol.metrics.limits import is_within
from convkit.protocol.metrics.metric_registry import absolute_limit

_CODES = {
    "layers": "C502",
    "parts": "C503",
    "positions": "C504",
    "stale": "C505",
    "updated": "C505",
    "reset": "C506",
}


def step_findings(
    recipe: Recipe,
    target: Target,
    measured: VerifyResult,
    cases: Sequence[CaseVerdict],
    override: Tolerance | None,
) -> list[Finding]:
    """Return what the trials prove about failed steps, N601 for tokens that differ, and N621 for
    those that a package generates.
    """
    findings = []
    if any(is_step(case.case) and not case.passed for case in cases):
        proofs = [each for each in measured.trials if _holds(each, recipe, target, override)]
        findings += [_cause(trial, cases) for trial in proofs]
    tie = _tie(recipe, target, cases, override)
    for rows, finding_of in (
        (measured.greedy, _tokens_differ),
        (measured.packaged, _package_differs),
    ):
        wide = [row for row in rows if row.margin is not None and not row.margin <= tie]
        if recipe.steps is not None and recipe.steps.greedy is not None and wide:
            findings.append(finding_of(max(wide, key=_margin), tie, recipe.steps.greedy))
    return findings


def _holds(trial: StepTrial, recipe: Recipe, target: Target, override: Tolerance | None) -> bool:
    """Say whether every call meets the tolerances once the mistake is undone."""
    outputs = [output for case in trial.cases for output in case.outputs]
    return (
        bool(outputs)
        and all(case.error is None and case.outputs for case in trial.cases)
        and all(
            is_within(output, limits_for(recipe, target, output.output, override))
            for output in outputs
        )
    )


def _cause(trial: StepTrial, cases: Sequence[CaseVerdict]) -> Finding:
    step = call_name("steps", trial.step)
    before = next((case for case in cases if case.case == step), None)
    errors = [output.metrics.max_abs for output in before.outputs] if before is not None else []
    after = max(output.max_abs for case in trial.cases for output in case.outputs)
    undone = f"the error falls from {max(errors, default=0.0):.3g} to {after:.3g}"
    evidence = {
        "proven": True,
        "kind": trial.kind,
        "step": trial.step,
        "tensors": list(trial.tensors),
        "error": max(errors, default=None),
        "error_without": after,
    }
    place = Place(tensor=trial.tensors[0], case=step)
    return Finding(_CODES[trial.kind], _text(trial, undone), place, evidence, _remedy(trial))


def _text(trial: StepTrial, undone: str) -> str:
    call = "the first call" if trial.step == 0 else f"call {trial.step + 1} on"
    names = ", ".join(map(repr, trial.tensors))
    match trial.kind:
        case "layers" | "parts":
            pairs = zip(trial.tensors[::2], trial.tensors[1::2], strict=True)
            listed = ", ".join(f"{one!r} and {other!r}" for one, other in pairs)
            return f"{listed} are swapped: fed in the opposite order, {undone}"
        case "positions":
            return (
                f"positions ({names}) are off by {-trial.shift:+d} from {call}: with"
                f" {trial.shift:+d}, {undone}"
            )
        case "stale":
            return (
                f"{names} is not updated: it lacks what the call added. Fed with the original's"
                f" instead, {undone} for the other outputs"
            )
        case "updated":
            return (
                f"{names} is wrong, and with it every later call. Fed with the original's instead,"
                f" {undone} for the other outputs"
            )
        case "reset":
            return (
                f"the state ({names}) has no effect from {call}: compared with an original that "
                f"starts every call from its first state, {undone}"
            )


def _remedy(trial: StepTrial) -> Remedy:
    match trial.kind:
        case "layers" | "parts":
            return Remedy("Swap these names where the model is exported.")
        case "positions":
            return Remedy("Look for what is added to the positions once the cache is not empty.")
        case "stale" | "updated":
            return Remedy(f"Check how the graph computes {trial.tensors[0]!r}.")
        case "reset":
            return Remedy(
                f"Check how the exporter traced {trial.tensors[0]!r}: it became constant."
            )


def _tie(
    recipe: Recipe, target: Target, cases: Sequence[CaseVerdict], override: Tolerance | None
) -> float:
    """Return by how much two candidates' scores may differ and still change order. A score may be
    off by the tolerance, so two may change order within twice as much; without an absolute limit,
    twice the error of the scores in the loop.
    """
    output = recipe.steps.greedy if recipe.steps is not None else None
    if output is None:
        return 0.0
    limit = absolute_limit(limits_for(recipe, target, output, override))
    if limit is None:
        calls = [case for case in cases if is_step(case.case)]
        scores = [each for case in calls for each in case.outputs if each.output == output]
        limit = max((each.metrics.max_abs for each in scores), default=0.0)
    return 2 * limit


def _margin(row: GreedyRow) -> float:
    return float("inf") if row.margin is None or row.margin != row.margin else row.margin


def _tokens_differ(row: GreedyRow, tie: float, output: str) -> Finding:
    return Finding(
        "N601",
        f"after {row.agreed} equal tokens of {row.generated}, row {row.row} continues with"
        f" {row.continuation}; the original with {row.expected}, whose score is {row.margin:.3g}"
        f" higher there (up to {tie:.3g} is a tie within the tolerance)",
        Place(tensor=output, case=call_name("steps-greedy", row.agreed)),
        {"agreed": row.agreed, "generated": row.generated, "margin": row.margin, "tie": tie},
        Remedy("Find out why the scores differ: see the other findings."),
    )


def _package_differs(row: GreedyRow, tie: float, output: str) -> Finding:
    return Finding(
        "N621",
        f"the package's own runtime continues row {row.row} with {row.continuation} after"
        f" {row.agreed} equal tokens of {row.generated}; the original with {row.expected}, whose"
        f" score is {row.margin:.3g} higher (up to {tie:.3g} is a tie within the tolerance)",
        Place(tensor=output),
        {"agreed": row.agreed, "generated": row.generated, "margin": row.margin, "tie": tie},
        Remedy("Find out why: see the other findings, E310 and N620 first."),
    )
