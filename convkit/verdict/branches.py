"""Whether a graph follows one side only of a branch in the original's Python."""

from collections.abc import Sequence

from convkit.findings.model import Finding, Place, Remedy
from convkit.recipe.models import Target
from convkit.record.model import CaseVerdict
from convkit.worker.protocol import ReferenceResult

# Codes that report wrong outputs without a cause.
_WRONG_OUTPUTS = ("N101", "N102", "N304", "N402")


def branch_findings(
    findings: Sequence[Finding],
    reference: ReferenceResult,
    target: Target,
    cases: Sequence[CaseVerdict],
) -> list[Finding]:
    """Return E302 where the failing cases are those on one side of a comparison of sizes, else E208
    where a float32 model is off and its original's Python decides by values that an export folds.
    """
    sides = _one_side(reference, cases)
    return sides or _folded_branch(findings, reference, target)


def _one_side(reference: ReferenceResult, cases: Sequence[CaseVerdict]) -> list[Finding]:
    """Return E302 for the first comparison whose outcome tells failing cases from the others."""
    for branch in reference.branches:
        judged = [case for case in cases if case.case in branch.outcomes]
        outcomes = {
            passed: {branch.outcomes[case.case] for case in judged if case.passed is passed}
            for passed in (True, False)
        }
        if len(judged) < len(cases) or not all(len(each) == 1 for each in outcomes.values()):
            continue
        if outcomes[True] == outcomes[False]:
            continue
        failing = [case for case in judged if not case.passed]
        return [_constant_branch(branch.place, failing, len(judged))]
    return []


def _constant_branch(place: str, failing: Sequence[CaseVerdict], total: int) -> Finding:
    first = failing[0]
    sizes = ", ".join(f"{name}={size}" for name, size in first.sizes.items())
    is_line = not place.startswith("node ")
    return Finding(
        "E302",
        f"the comparison of sizes at {place} falls out differently in exactly the {len(failing)} of"
        f" {total} cases that fail, the first of which is {first.case!r} ({sizes}): the converted"
        " model computes what belongs to the other side",
        Place(
            source=place if is_line else None,
            node=None if is_line else place.split()[1],
            case=first.case,
        ),
        {"failing": [case.case for case in failing]},
        Remedy(
            f"Write the branch at {place} with torch.cond or torch.where, or limit the axis to one"
            " side of it."
            if is_line
            else "Correct the file where it was made: convkit changes no node of it."
        ),
    )


def _folded_branch(
    findings: Sequence[Finding], reference: ReferenceResult, target: Target
) -> list[Finding]:
    """Return E208 if a float32 model is off and its original's Python control flow depends on
    values that an export folds.
    """
    lines = reference.value_dependent
    off = [finding for finding in findings if finding.is_error and finding.code in _WRONG_OUTPUTS]
    if not lines or not off or target.low_precision is not None or target.quantization is not None:
        return []
    shown = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    return [
        Finding(
            "E208",
            f"the model branches on tensor values at {shown}, tracing one example makes such a"
            " branch constant, and the results are wrong",
            Place(source=lines[0], case=off[0].place.case),
            {"lines": list(lines)},
            Remedy(
                "Write the branch with torch.where or torch.cond, or export with exporter: torch."
            ),
        )
    ]
