"""Where an executed target contradicts a simulated one, the original says who is right."""

import pytest
from small_recipe import recipe

from convkit.host.record.run_record import CaseVerdict, TargetReport, Verification
from convkit.host.verdict.executed_beside import beside_executed
from convkit.protocol.findings.finding import Finding, Place

TARGETS = {
    "phone": {"runtime": "coreml", "precision": "float16"},
    "next": {"runtime": "coreai", "precision": "float16"},
    "exact": {"runtime": "coreai"},
}
RESOLVED = Finding("N508", "resolved", Place(case="typical"), {"units": {"y": 3.0}})


def report(
    name: str, *, passes: bool, evidence: str, findings: tuple[Finding, ...] = ()
) -> TargetReport:
    runtime = TARGETS[name]["runtime"]
    cases = tuple(
        CaseVerdict(case, case, {}, passed, 0.1, ())
        for case, passed in {"smallest": True, "typical": passes}.items()
    )
    status = "verified" if passes else "failed"
    told = Verification(f"verify:{name}", None, status, evidence, "", cases, findings=findings)  # type: ignore[arg-type]
    return TargetReport(name, runtime, "cpu", "", status, "", (told,))  # type: ignore[arg-type]


def contradictions(*reports: TargetReport) -> dict[str, list[Finding]]:
    judged = beside_executed(recipe(targets=TARGETS), reports)
    return {each.name: list(each.findings) for each in judged}


@pytest.mark.parametrize("simulated", [True, False])
def test_the_one_that_the_original_agrees_with_is_right(simulated: bool) -> None:
    found = contradictions(
        report("phone", passes=simulated, evidence="simulated"),
        report("next", passes=not simulated, evidence="device"),
    )
    (finding,) = found["phone"]
    assert (finding.code, finding.severity, finding.place.case) == ("N216", "note", "typical")
    assert finding.evidence["right"] == ("simulation" if simulated else "execution")
    assert finding.evidence["cases"] == ["typical"]
    assert finding.evidence["original_in"] == "float32"
    assert "1 of 2 cases" in finding.message
    assert found["next"] == []


def test_the_original_in_float64_decides_what_float32_does_not_resolve() -> None:
    found = contradictions(
        report("phone", passes=False, evidence="simulated", findings=(RESOLVED,)),
        report("next", passes=True, evidence="device"),
    )
    assert found["phone"][0].evidence["original_in"] == "float64"


@pytest.mark.parametrize(
    ("beside", "passes", "evidence"),
    [
        ("next", True, "device"),  # they agree
        ("exact", False, "device"),  # another precision
        ("next", False, "simulated"),  # nothing was executed
    ],
)
def test_nothing_else_contradicts(beside: str, passes: bool, evidence: str) -> None:
    found = contradictions(
        report("phone", passes=True, evidence="simulated"),
        report(beside, passes=passes, evidence=evidence),
    )
    assert found == {"phone": [], beside: []}
