"""Names the line of the model's own code that fixes or restricts an axis. Needs torch only."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.decision_sizes import Decisions, Turn, turns
from convkit.worker.original.probing.torch_comparisons import find_decisions

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.probing.contract_probe import Examples, Probe


def with_lines(
    findings: Sequence[Finding],
    module: "ContractModule",
    examples: "Examples",
    probe: "Probe",
    root: str | None,
) -> list[Finding]:
    """Return torch.export's findings on axes with the responsible lines of the model's code."""
    if not any(finding.code in ("C106", "C113") for finding in findings):
        return list(findings)
    contract = examples.contract
    decisions, numbers = find_decisions(module, examples.draw, contract, probe.sizes, root)
    return at_lines(findings, contract, probe, decisions, numbers)


def at_lines(
    findings: Sequence[Finding],
    contract: Contract,
    probe: "Probe",
    decisions: Decisions,
    numbers: Mapping[str, Collection[str]],
) -> list[Finding]:
    """Return torch.export's findings on axes, with a line where one of the decisions explains it;
    `numbers` are the lines that turn a size into a plain number, with its axes.
    """
    deciding = [
        turn for decision in decisions.sizes for turn in turns(decision, contract, probe.sizes)
    ]
    return [
        _fixed(finding, _of_axis(finding, numbers))
        if finding.code == "C106"
        else _restricted(finding, deciding, _of_axis(finding, numbers))
        for finding in findings
    ]


def _of_axis(finding: Finding, numbers: Mapping[str, Collection[str]]) -> list[str]:
    """Return the lines that turn a size of a finding's axis into a number; all if it has none."""
    axis = finding.evidence.get("axis")
    return [place for place, axes in numbers.items() if axis is None or axis in axes]


def _fixed(finding: Finding, numbers: Sequence[str]) -> Finding:
    """Name the line that fixes an axis, where one turns a size into a plain number."""
    if not numbers:
        return finding
    axis, size = finding.evidence["axis"], finding.evidence["fixed"]
    return Finding(
        finding.code,
        f"The model's own code fixes axis {axis!r} at {size}, the example's size: a size becomes a"
        f" plain number at {numbers[0]}.",
        Place(tensor=finding.place.tensor, source=numbers[0]),
        {**finding.evidence, "lines": list(numbers)},
        Remedy(
            "Compute shapes in the model from tensor.shape[i], without int() or literal sizes, so"
            f" that {axis!r} can vary."
        ),
    )


def _restricted(finding: Finding, deciding: Sequence[Turn], numbers: Sequence[str]) -> Finding:
    """Name the branch on a size that restricts an axis, or the line that makes it a number."""
    turn = next((turn for turn in deciding if finding.place.tensor in (None, turn.axis)), None)
    if finding.code != "C113":
        return finding
    if turn is None and numbers and finding.place.source is None:
        return dataclasses.replace(
            finding,
            message=f"{finding.message} A size becomes a plain number at {numbers[0]}.",
            place=dataclasses.replace(finding.place, source=numbers[0]),
            evidence={**finding.evidence, "lines": list(numbers)},
            remedy=Remedy(
                f"Compute what {numbers[0]} needs with whole numbers (// and *) or tensors, not"
                " with floats of a size.",
                finding.remedy.change if finding.remedy is not None else {},
            ),
        )
    if turn is None:
        return finding
    sides = turn.below[turn.axis], turn.above[turn.axis]
    text = finding.remedy.text if finding.remedy is not None else ""
    change = finding.remedy.change if finding.remedy is not None else {}
    return dataclasses.replace(
        finding,
        message=f"{finding.message} The branch at {turn.place} changes between {turn.axis}"
        f" {sides[0]} and {sides[1]}.",
        place=dataclasses.replace(finding.place, source=turn.place),
        evidence={**finding.evidence, "branch": turn.place, "sides": list(sides)},
        remedy=Remedy(f"Write the branch at {turn.place} with torch.cond. Or: {text}", change),
    )
