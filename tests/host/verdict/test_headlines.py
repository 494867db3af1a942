"""Which finding is a target's headline: a cause only if it is proven."""

import pytest

from convkit.host.findings.catalog import CATALOG
from convkit.host.record.run_record import Verification
from convkit.host.verdict.cause_preference import proofs_first
from convkit.host.verdict.target_reports import _headline
from convkit.protocol.findings.finding import Finding, Place

CLAIMS = [code for code, row in CATALOG.items() if row.proof]
SYMPTOM = Finding("N101", "off")


@pytest.mark.parametrize("code", CLAIMS)
def test_a_cause_leads_only_if_it_is_proven(code: str) -> None:
    guess = Finding(code, "a cause", severity="error")
    proven = Finding(code, "a cause", evidence={"proven": True}, severity="error")
    assert proofs_first([guess, SYMPTOM]) == [SYMPTOM, guess]
    assert proofs_first([SYMPTOM, proven])[0] == proven
    assert proofs_first([guess]) == [guess]


def headline(finding: Finding, *said: Finding) -> Finding | None:
    verification = Verification(
        "verify:x", None, "failed", "device", "", findings=said, leading=said[0]
    )
    return _headline("failed", (finding,), (verification,))[1]


def test_a_guess_about_a_build_gives_way_to_what_was_verified() -> None:
    guess = Finding("N201", "out of range", severity="error")
    assert headline(guess, SYMPTOM) == SYMPTOM
    refusal = Finding("E210", "no weights")
    assert headline(refusal, SYMPTOM) == refusal


@pytest.mark.parametrize(("module", "leads"), [("head", True), ("body", False)])
def test_a_calibrated_range_leads_if_its_module_costs_most(module: str, leads: bool) -> None:
    warning = Finding("Q106", "constant", Place(module=module))
    costs = Finding("Q102", "costs", Place(module="head"), {"costly": ["head"]})
    assert headline(warning, SYMPTOM, costs) == (warning if leads else SYMPTOM)
    assert headline(warning, SYMPTOM) == SYMPTOM


def test_an_original_without_a_number_at_extremes_gives_way_to_a_fault_at_usual_values() -> None:
    extreme = Finding("N103", "NaN", Place(tensor="y", case="extreme"))
    usual = Finding("N103", "NaN", Place(tensor="y", case="typical"))
    assert headline(extreme, SYMPTOM) == SYMPTOM
    assert headline(extreme, extreme) == extreme
    assert headline(usual, SYMPTOM) == usual
    assert proofs_first([extreme, SYMPTOM]) == [SYMPTOM, extreme]
