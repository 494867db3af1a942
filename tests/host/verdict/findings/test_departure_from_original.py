"""A file that departs from what its original follows is at fault, not the recipe."""

import dataclasses
from typing import Any

import pytest
from records import stages
from small_recipe import recipe

from convkit.host.plan.tensor_requests import contract_of
from convkit.host.record.run_record import StageReport
from convkit.host.verdict.findings.departure_from_original import with_feasible_remedies
from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.worker.original.contract_check import check_contract

ORIGINAL: dict[str, Any] = {"factory": {"call": "model.py:build"}}
AUDITED = recipe(model={"onnx": "model.onnx"}, original=ORIGINAL)
BOTH = [
    {"name": name, "dtype": "float32", "shape": ["batch", "sequence", size]}
    for name, size in (("y", 4), ("z", 5))
]
TWO = recipe(model={"onnx": "model.onnx"}, original=ORIGINAL, outputs=BOTH)
REFERENCE = next(stage for stage in stages() if stage.kind == "reference")
FINE = dataclasses.replace(REFERENCE, status="done", findings=())


def found(given: Any = AUDITED, reference: StageReport = FINE, **sides: Any) -> list[Finding]:
    """Return what a file with other inputs or outputs raises."""
    declared = contract_of(given)
    file = dataclasses.replace(declared, **sides)
    findings = check_contract(declared, file, "exported graph")
    assert findings
    return with_feasible_remedies(findings, given, reference)


def side(given: Any, which: str, index: int, **changes: Any) -> Any:
    """Return a contract's inputs or outputs with one of them changed."""
    specs = list(getattr(contract_of(given), which))
    specs[index] = dataclasses.replace(specs[index], **changes)
    return tuple(specs)


def change(finding: Finding) -> dict[str, Any]:
    assert finding.remedy is not None
    return finding.remedy.change


def test_a_name_of_the_file_leaves_the_original_its_own() -> None:
    (finding,) = found(inputs=side(AUDITED, "inputs", 0, name="tokens"))
    assert (finding.code, change(finding)) == (
        "C104",
        {"inputs.0.name": "tokens", "inputs.0.from": "ids"},
    )
    (finding,) = found(outputs=side(AUDITED, "outputs", 0, name="hidden"))
    assert change(finding) == {"outputs.0.name": "hidden", "outputs.0.from": "y"}


@pytest.mark.parametrize(
    ("code", "sides"),
    [
        ("C101", {"inputs": contract_of(AUDITED).inputs[:2]}),
        ("C105", {"inputs": side(AUDITED, "inputs", 0, dtype="float32")}),
        ("C205", {"outputs": side(AUDITED, "outputs", 0, dtype="float16")}),
        ("C207", {"outputs": side(AUDITED, "outputs", 0, shape=("batch", "sequence", 5))}),
    ],
)
def test_what_the_original_would_not_follow_is_for_the_file_to_correct(
    code: str, sides: dict[str, Any]
) -> None:
    finding = found(**sides)[0]
    assert finding.code == code
    assert finding.remedy is not None
    assert finding.remedy.change == {}
    assert finding.remedy.text.startswith("Correct the file at its source")


def test_what_is_corrected_stays_as_it_is() -> None:
    once = found(inputs=side(AUDITED, "inputs", 0, name="tokens"))
    assert with_feasible_remedies(once, AUDITED, FINE) == once


def test_another_order_of_outputs_is_tried_and_a_tuple_s_told() -> None:
    (finding,) = found(TWO, outputs=contract_of(TWO).outputs[::-1])
    assert finding.remedy is not None
    assert "from: 0" in finding.remedy.text
    assert (finding.remedy.change, finding.remedy.label) == (
        {"outputs": [{"name": "z"}, {"name": "y"}]},
        "untried",
    )
    assert with_feasible_remedies([finding], TWO, FINE) == [finding]
    named = [item | {"from": item["name"]} for item in BOTH]
    given = recipe(model={"onnx": "model.onnx"}, original=ORIGINAL, outputs=named)
    (finding,) = found(given, outputs=contract_of(given).outputs[::-1])
    assert change(finding) == {"outputs": [{"name": "z"}, {"name": "y"}]}


def test_another_width_of_an_index_stays_a_change() -> None:
    (finding,) = found(inputs=side(AUDITED, "inputs", 0, dtype="int32"))
    assert (finding.code, change(finding)) == ("C105", {"inputs.0.dtype": "int32"})


@pytest.mark.parametrize(
    ("given", "reference"),
    [
        (recipe(model={"onnx": "model.onnx"}), FINE),
        (recipe(), FINE),
        (AUDITED, dataclasses.replace(FINE, status="broken")),
        (AUDITED, dataclasses.replace(FINE, findings=(Finding("C205", "of the original"),))),
    ],
)
def test_without_an_original_that_follows_the_recipe_nothing_changes(
    given: Any, reference: StageReport
) -> None:
    declared: Contract = contract_of(given)
    file = dataclasses.replace(declared, outputs=side(given, "outputs", 0, dtype="float16"))
    findings = check_contract(declared, file, "exported graph")
    assert with_feasible_remedies(findings, given, reference) == findings
