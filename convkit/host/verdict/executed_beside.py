"""Compares a simulated target with one that was executed for it: another runtime of the same maker,
of which this machine has what runs its models.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from convkit.host.recipe.keys.low_precision_types import low_type
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import CaseVerdict, TargetReport, Verification
from convkit.host.verdict.float32_resolution import resolution
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.runtimes.runtime_registry import runtimes


def beside_executed(recipe: Recipe, reports: Sequence[TargetReport]) -> tuple[TargetReport, ...]:
    """Return the reports of a recipe's targets, with N216 in those of simulated targets of whose
    cases an executed target in the same precision passes others. The original decides who is right.
    """
    return tuple(
        dataclasses.replace(
            report, findings=(*report.findings, *_contradictions(recipe, report, reports))
        )
        for report in reports
    )


def _contradictions(
    recipe: Recipe, report: TargetReport, reports: Sequence[TargetReport]
) -> Iterator[Finding]:
    rows = runtimes()
    for other in reports:
        row = rows.get(other.runtime)
        if row is None or row.executes_beside != report.runtime:
            continue
        if low_type(recipe.targets[other.name]) != low_type(recipe.targets[report.name]):
            continue
        for simulated in report.verifications[:1]:
            for executed in other.verifications[:1]:
                if (simulated.evidence, executed.evidence) == ("simulated", "device"):
                    yield from _contradiction(report.name, simulated, other.name, executed)


def _contradiction(
    name: str, simulated: Verification, other: str, executed: Verification
) -> Iterator[Finding]:
    """Yield N216 for the first case with two verdicts; others are in its evidence."""
    known = {case.case: case for case in executed.cases}
    pairs = [(case, known[case.case]) for case in simulated.cases if case.case in known]
    apart = [(a, b) for a, b in pairs if a.passed != b.passed]
    if not apart:
        return
    ours, theirs = apart[0]
    right, wrong = ("simulation", "execution") if ours.passed else ("execution", "simulation")
    failing = theirs if ours.passed else ours
    exact = {case for case, _ in resolution([*simulated.findings, *executed.findings])}
    original = "float64" if ours.case in exact else "float32"
    whose = (
        f"the simulation of {name!r} is right, and what fails is {other!r} itself"
        if ours.passed
        else f"what fails is {name!r} as convkit simulates it: its program, or the simulation"
    )
    message = (
        f"case {ours.case!r} {_verdict(ours)} here in simulation and {_verdict(theirs)} where"
        f" {other!r} was executed ({len(apart)} of {len(pairs)} cases differ); the original in"
        f" {original} agrees with the {right}: {_error(failing)} in the {wrong}. So {whose}"
    )
    yield Finding(
        "N216",
        message,
        Place(case=ours.case),
        {
            "cases": [case.case for case, _ in apart],
            "executed": other,
            "right": right,
            "original_in": original,
        },
    )


def _verdict(case: CaseVerdict) -> str:
    return "passes" if case.passed else "fails"


def _error(case: CaseVerdict) -> str:
    """Return why a case fails."""
    if case.error is not None:
        return case.error
    failures = [f"{each.output!r}: {text}" for each in case.outputs for text in each.failures]
    return failures[0] if failures else "its outputs are off"
