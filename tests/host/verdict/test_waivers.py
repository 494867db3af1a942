"""Waivers: what they change, what they cannot change, and when they end."""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest
from records import case_verdict, output_verdict
from small_recipe import recipe

from convkit.host.recipe.keys.recipe import Waiver
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.host.record.run_record import TargetReport, TargetStatus, Verification
from convkit.host.run.run_key import run_key
from convkit.host.verdict.waivers import with_waivers, without_waivers
from convkit.protocol.errors import RecipeError
from convkit.protocol.findings.finding import Finding

DAY = dt.date(2026, 6, 15)


def waiver(code: str = "N101", until: str = "2026-06-15", target: str = "ort") -> Waiver:
    return Waiver(code=code, target=target, reason="known", until=until)


def verification(
    codes: Sequence[str], status: TargetStatus = "failed", *, compared: bool = True
) -> Verification:
    case = case_verdict("smallest", 1, 8, output_verdict(1.0, "max_abs 1 > 0.0001"))
    return Verification(
        stage="verify:ort",
        version=None,
        status=status,
        evidence="device",
        headline="N101 y is off",
        cases=(case,) if compared else (),
        findings=tuple(Finding(code, "found") for code in codes),
    )


def report(*verifications: Verification, upstream: Sequence[str] = ()) -> TargetReport:
    return TargetReport(
        name="ort",
        runtime="onnxruntime",
        device="cpu",
        precision="float32",
        status="failed",
        headline="N101 y is off",
        verifications=verifications,
        findings=tuple(Finding(code, "found") for code in upstream),
    )


def test_a_target_whose_every_error_is_waived_is_waived_and_not_verified() -> None:
    found = with_waivers(report(verification(["N101", "N502"])), [waiver()], DAY)
    assert (found.status, found.verifications[0].status) == ("waived", "waived")
    assert found.headline == "waived until 2026-06-15: N101 y is off"
    assert [each.state for each in found.waivers] == ["active"]
    # Nothing is hidden: the error is still there, and still an error.
    assert [each.is_error for each in found.verifications[0].findings] == [True, False]
    assert not found.verifications[0].cases[0].passed


@pytest.mark.parametrize(
    "failing",
    [
        report(verification(["N101", "N405"])),
        report(verification(["N101"]), upstream=["C205"]),
        report(verification(["N101"], compared=False)),
        report(verification(["N101"]), verification(["N102"])),
        report(verification([])),
    ],
    ids=["another error", "wrong contract", "nothing compared", "another release", "no reason"],
)
def test_what_the_waiver_does_not_name_still_fails(failing: TargetReport) -> None:
    assert with_waivers(failing, [waiver()], DAY).status == "failed"


@pytest.mark.parametrize("status", ["broken", "skipped"])
def test_what_broke_or_did_not_run_stays_as_it_is(status: TargetStatus) -> None:
    stopped = dataclasses.replace(
        report(verification(["N101"], status, compared=False)), status=status
    )
    found = with_waivers(stopped, [waiver("N102")], DAY)
    assert (found.status, found.waivers[0].state) == (status, "unchecked")
    assert found.findings == ()


def test_an_expired_waiver_fails_the_target_and_leads() -> None:
    found = with_waivers(report(verification(["N101"])), [waiver(until="2026-06-14")], DAY)
    assert (found.status, found.waivers[0].state) == ("failed", "expired")
    assert found.leading is not None
    assert found.leading.code == "R110"
    assert "expired on 2026-06-14" in found.headline


@pytest.mark.parametrize(
    ("until", "state"), [("2026-06-15", "unused"), ("2026-06-14", "expired-unused")]
)
def test_a_waiver_that_matches_nothing_warns(until: str, state: str) -> None:
    good = dataclasses.replace(report(verification([], "verified")), status="verified")
    found = with_waivers(good, [waiver(until=until)], DAY)
    assert (found.status, found.waivers[0].state) == ("verified", state)
    assert [(each.code, each.severity) for each in found.findings] == [("R111", "warning")]


def test_waivers_of_other_targets_change_nothing() -> None:
    failing = report(verification(["N101"]))
    assert with_waivers(failing, [waiver(target="trt")], DAY) == failing


def test_taking_waivers_away_gives_back_the_failure() -> None:
    failing = report(verification(["N101"]))
    for waivers in ([waiver()], [waiver("N102")], [waiver(until="2026-01-01")]):
        plain = without_waivers(with_waivers(failing, waivers, DAY))
        assert (plain.status, plain.verifications[0].status) == ("failed", "failed")
        assert (plain.findings, plain.waivers) == ((), ())


def test_the_key_of_a_run_changes_on_the_day_a_waiver_ends() -> None:
    given = [{"code": "N101", "target": "ort", "reason": "known", "until": "2026-06-15"}]
    asked, stages = recipe(waive=given), {"verify:ort": "1"}
    during = run_key(asked, stages, DAY)
    assert during == run_key(asked, stages, DAY - dt.timedelta(days=3))
    assert during != run_key(asked, stages, DAY + dt.timedelta(days=1))
    assert during != run_key(recipe(), stages, DAY)


TEXT = """\
schema: 1
name: small
model: {config: {architecture: bert}}
inputs: [{name: x, dtype: float32, shape: [2]}]
outputs: [{name: y, dtype: float32, shape: [2]}]
targets: {ort-cpu: {runtime: onnxruntime}}
waive:
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("code: C205, target: ort-cpu, reason: r, until: 2027-01-31", "cannot be waived"),
        ("code: E206, target: ort-cpu, reason: r, until: 2027-01-31", "cannot be waived"),
        ("code: N104, target: ort-cpu, reason: r, until: 2027-01-31", "cannot be waived"),
        ("code: N999, target: ort-cpu, reason: r, until: 2027-01-31", "no finding has the code"),
        ("code: n101, target: ort-cpu, reason: r, until: 2027-01-31", "such as N101"),
        ("code: N101, target: ort, reason: r, until: 2027-01-31", "perhaps you meant 'ort-cpu'"),
        ("code: N101, target: ort-cpu, reason: '', until: 2027-01-31", "reason"),
        ("code: N101, target: ort-cpu, reason: r, until: 2027-02-30", "not a valid date"),
        ("code: N101, target: ort-cpu, reason: r, until: soon", "year-month-day"),
        ("code: N101, target: ort-cpu, until: 2027-01-31", "reason"),
    ],
)
def test_a_wrong_waiver_is_refused_at_its_line(tmp_path: Any, line: str, said: str) -> None:

    with pytest.raises(RecipeError, match=r"recipe\.yaml:8") as caught:
        parse_recipe(f"{TEXT}  - {{{line}}}\n", tmp_path / "recipe.yaml")
    assert said in str(caught.value)


def test_a_waiver_is_read_and_not_given_twice(tmp_path: Any) -> None:

    line = "  - {code: N101, target: ort-cpu, reason: known, until: 2027-01-31}\n"
    loaded = parse_recipe(TEXT + line, tmp_path / "recipe.yaml")
    assert loaded.recipe.waive[0].last_day == dt.date(2027, 1, 31)
    with pytest.raises(RecipeError, match="waived twice"):
        parse_recipe(TEXT + line + line, tmp_path / "recipe.yaml")
