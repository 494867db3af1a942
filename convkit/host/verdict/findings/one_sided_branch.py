"""Whether a graph follows one side only of a branch on sizes in the original's Python."""

from collections.abc import Sequence

from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.findings.shared_remedies import branch_in_the_graph
from convkit.protocol.messages import ReferenceResult

_AT_ITS_SOURCE = Remedy("Correct the file at its source: convkit does not edit its nodes.")


def branch_findings(reference: ReferenceResult, cases: Sequence[CaseVerdict]) -> list[Finding]:
    """Return E302 for the first comparison of sizes whose outcome separates failing cases from the
    others. That may be chance: only a search proves it, by inverting the comparison.
    """
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
        f"the comparison of sizes at {place} has a different result in exactly the {len(failing)}"
        f" of {total} cases that fail, the first of which is {first.case!r} ({sizes}): the"
        " converted model computes the other side",
        Place(
            source=place if is_line else None,
            node=None if is_line else place.split()[1],
            case=first.case,
        ),
        {"failing": [case.case for case in failing], "proven": False},
        branch_in_the_graph(place) if is_line else _AT_ITS_SOURCE,
    )
