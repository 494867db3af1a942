"""The order of what a search has proven and what else was found."""

import dataclasses

import pytest

from convkit.host.findings.consequences import cause_of
from convkit.host.verdict.cause_preference import FIND_THE_CAUSE, proofs_first
from convkit.protocol.findings.finding import Finding, Place, Remedy

DEAD = Finding("C108", "'time' has no effect", Place(tensor="time"), {"constant_outputs": False})
PLACE = Finding("N408", "Add is wrong", Place(node="Add"), {"proven": True, "kind": "place"})


def proven(code: str, kind: str) -> Finding:
    return Finding(code, kind, Place(node="n"), {"proven": True, "kind": kind})


def order(*findings: Finding) -> list[str]:
    return [finding.code for finding in proofs_first(findings)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *(("N403", "weight"), ("N404", "exchanged"), ("N403", "checkpoint"), ("Q108", "quantized")),
        *(("N406", "missing"), ("N406", "extra"), ("N405", "operator")),
    ],
)
def test_an_input_without_effect_follows_a_wrong_weight_or_step(code, kind):
    assert order(DEAD, PLACE, proven(code, kind)) == [code, "C108", "N408"]


@pytest.mark.parametrize(("code", "kind"), [("N405", "constant"), ("N407", "wiring")])
def test_an_input_that_does_not_enter_leads(code, kind):
    assert order(proven(code, kind), DEAD) == ["C108", code]


def test_an_input_without_effect_comes_with_what_is_read_in_its_place():
    found = proven("N407", "wiring")
    evidence = found.evidence | {"stands_for": "time"}
    found = dataclasses.replace(found, message="Add is 1", evidence=evidence)
    first, second = proofs_first([found, DEAD])
    assert (first.code, first.message) == ("C108", "'time' has no effect; Add is 1")
    assert first.place == Place(tensor="time", node="n")
    assert second == found
    other = dataclasses.replace(found, evidence=evidence | {"stands_for": "mask"})
    assert proofs_first([other, DEAD])[0] == DEAD


def test_an_input_without_effect_leads_where_only_the_place_is_known():
    assert order(PLACE, DEAD) == ["C108", "N408"]
    assert order(Finding("N101", "off"), DEAD) == ["N101", "C108"]  # nothing is proven


def test_a_symptom_refers_to_the_cause_that_is_proven():
    symptom = Finding("N101", "off", remedy=FIND_THE_CAUSE)
    searched = dataclasses.replace(symptom, remedy=Remedy("Keep more.", {"a": 1}))
    cause = proven("N405", "attribute")
    _, first, second = proofs_first([symptom, searched, cause])
    assert first.remedy == Remedy("This follows from N405: correct that first.", refers=True)
    assert second.remedy == first.remedy  # float32 does not help where an operator is wrong
    tried = dataclasses.replace(symptom, remedy=Remedy("Keep more.", {"a": 1}, proven=True))
    assert proofs_first([tried, cause])[1] == tried
    assert proofs_first([symptom, PLACE])[1] == symptom  # a place is no cause
    owned = dataclasses.replace(PLACE, evidence=PLACE.evidence | {"owner": "kernel"})
    follows = Remedy("This follows from N408: correct that first.", refers=True)
    assert proofs_first([symptom, owned])[1].remedy == follows
    assert proofs_first([symptom]) == [symptom]


@pytest.mark.parametrize(("change", "folds"), [({}, False), ({"b": 2}, True)])
def test_a_change_of_the_precision_stays_until_its_cause_has_one(change, folds):
    searched = Finding("N101", "off", remedy=Remedy("Keep more.", {"a": 1}))
    overflow = dataclasses.replace(proven("N214", "overflow"), remedy=Remedy("Keep it.", change))
    follows = Remedy("This follows from N214: correct that first.", refers=True)
    assert proofs_first([searched, overflow])[1].remedy == (follows if folds else searched.remedy)


def test_a_difference_refers_to_the_error_that_leads_without_a_proof():
    symptom = Finding("N101", "off", remedy=FIND_THE_CAUSE)
    _, second = proofs_first([Finding("T108", "beyond int32"), symptom])
    assert second.remedy == Remedy("This may follow from T108: correct that first.", refers=True)
    assert proofs_first([Finding("N102", "NaN"), symptom])[1].remedy == FIND_THE_CAUSE


def test_a_warning_is_no_cause():
    symptom = Finding("N101", "off", remedy=FIND_THE_CAUSE)
    assert proofs_first([symptom, proven("N514", "writes")])[0] == symptom


def test_faults_that_are_explained_lead_before_a_place_that_is_not():
    assert order(PLACE, proven("N405", "attribute")) == ["N405", "N408"]


@pytest.mark.parametrize("code", ["N301", "N302"])
def test_a_dependence_comes_with_the_place_where_it_begins(code):
    symptom = Finding(code, "padding changes 'y'", Place(tensor="y", case="padded"))
    place = dataclasses.replace(PLACE, place=Place(node="Add", module="m", source="model.py:3"))
    first, _ = proofs_first([place, symptom])
    assert first.message == "padding changes 'y'; it begins where Add is wrong"
    at = Place(tensor="y", case="padded", node="Add", module="m", source="model.py:3")
    assert first.place == at
    unproven = dataclasses.replace(place, evidence={"proven": False})
    assert proofs_first([unproven, symptom]) == [symptom, unproven]


@pytest.mark.parametrize(
    ("owner", "follows"), [("kernel", True), ("fusion", True), ("module", False)]
)
@pytest.mark.parametrize("code", ["N401", "N408"])
def test_a_row_beside_others_follows_from_a_runtime_s_fault(code, owner, follows):
    depends = Finding("N302", "a row depends", Place(tensor="y"), remedy=Remedy("Look."))
    cause = Finding(code, "is wrong", Place(node="Add"), {"proven": True, "owner": owner})
    found = proofs_first([depends, cause])
    behind = [each for each in found if cause_of(each) == code]
    assert [each.code for each in behind] == (["N302"] if follows else [])
    assert not follows or found[0].code == code


@pytest.mark.parametrize(("error", "refers"), [(3e-7, True), (0.5, False)])
def test_a_difference_of_a_few_units_refers_to_the_limit_that_is_finer(error, refers):
    symptom = Finding("N101", "off", Place(tensor="y"), {"max_abs": error}, FIND_THE_CAUSE)
    fine = Finding("N502", "fine", Place(tensor="y"), {"unit": 1e-7}, Remedy("Allow at least 1."))
    first, _ = proofs_first([symptom, fine])
    wanted = Remedy("The limit is finer than the type: allow at least 1.")
    assert first.remedy == (wanted if refers else FIND_THE_CAUSE)


def test_a_difference_by_quantization_names_the_modules_it_comes_from():
    symptom = Finding("N101", "off", Place(tensor="y", case="smallest"))
    evidence = {"origin": "90% of that comes from head"}
    costs = Finding("Q102", "costs", Place(module="head"), evidence)
    first, second = proofs_first([symptom, costs])
    assert first.message == "off; 90% of quantization's error comes from head"
    assert first.place == Place(tensor="y", module="head", case="smallest")
    assert second == costs
    assert proofs_first([symptom]) == [symptom]


def test_a_difference_by_quantization_refers_to_the_modules_to_keep():
    search = Remedy("Let convkit find them, or relax the tolerance.", {"precision": "auto"})
    symptom = Finding("N101", "off", Place(tensor="y"), remedy=search)
    keep = Remedy("Keep head.", {"keep_float32": ["head"]})
    evidence = {"origin": "90% of that comes from head"}
    costs = Finding("Q102", "costs", Place(module="head"), evidence, keep)
    first, _ = proofs_first([symptom, costs])
    assert first.remedy.change == search.change
    assert first.remedy.text.startswith("Keep the modules that Q102 names")
    without = dataclasses.replace(costs, remedy=None)  # of a limit that is out of reach
    assert proofs_first([symptom, without])[0].remedy == search


def test_a_probe_that_finds_the_swap_that_is_proven_follows_from_it():
    cause = proven("C110", "inputs")
    shown = {"proven": True, "parity_as_declared": 0.4}
    probed = Finding("C110", "a and b are swapped", evidence=shown, remedy=Remedy("Swap them."))
    first, second = proofs_first([cause, probed])
    assert first == cause
    assert second.remedy == Remedy("This follows from C110: correct that first.", refers=True)
    assert proofs_first([probed]) == [probed]
    other = dataclasses.replace(probed, code="C208")  # outputs, which are swapped as well
    assert other in proofs_first([cause, other])
    changing = dataclasses.replace(probed, remedy=Remedy("Swap them.", {"inputs": []}))
    assert changing in proofs_first([cause, changing])
    assert proofs_first([cause, dataclasses.replace(cause, message="c and d")])[1].remedy is None
