"""Each sentence of a report is what its evidence says."""

import dataclasses
import re
from pathlib import Path

import pytest
from records import build_record, failed_target, skipped_target, verified_target
from svg import description, words

from convkit.host.record.run_record import RepairStep, TargetReport
from convkit.host.record.tried_sizes import tried_values
from convkit.host.report.report_file import render_report
from convkit.host.report.report_text import evidence_facts
from convkit.host.report.report_view import run_view
from convkit.host.report.run_facts import run_facts
from convkit.host.report.run_plots import size_measure
from convkit.host.run.checked_out_commit import checked_out_commit
from convkit.host.run.run_options import Lineage
from convkit.host.trials.fault_owner import Experiment
from convkit.host.trials.recipe_trials import written
from convkit.host.verdict.verdict_without_device import without_device
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import LowPrecision, ModulePrecision, PrecisionResult
from convkit.worker.precision.diagnosis.guilty_origins import WrongValueOrigin, guilty, proof

OVERFLOW = Finding("N202", "x overflows", Place(tensor="x", case="masked-row"))


def path_of(evidence: dict) -> str:
    leading = dataclasses.replace(OVERFLOW, evidence=evidence)
    record = build_record(targets=(dataclasses.replace(failed_target(), leading=leading),))
    path = run_view(record).targets[0].path
    assert path is not None
    return description(path.svg)


def test_a_count_of_elements_is_never_called_an_error_in_parts_of_the_rms() -> None:
    origin = WrongValueOrigin("x", is_constant=False)
    found = guilty([origin], lambda right: 0 if origin in right else 5)
    evidence = proof(found, "x")
    assert "Elements of the outputs that are not finite: 5 before, 0 then." in path_of(evidence)
    assert "rms" not in path_of(evidence)
    assert ("elements of the outputs that are not finite", "5") in evidence_facts(evidence)


def test_a_cause_beside_another_is_charged_with_its_own_effect() -> None:
    x, y = (WrongValueOrigin(name, is_constant=False) for name in "xy")
    found = guilty([x, y], lambda right: 0 if {x, y} <= {*right} else 5)
    evidence = proof(found, "x")
    text = "not finite, with the other cause corrected: 5 before, 0 then."
    assert text in path_of(evidence)
    facts = dict(evidence_facts(evidence))
    assert facts["of them with this corrected as well"] == "0"
    assert facts["their names"] == "y"
    in_case = dict(evidence_facts(evidence, "masked-row"))
    assert in_case["of them with this corrected as well"] == "0 in case masked-row"
    assert facts["elements of the outputs that are not finite, other causes corrected"] == "5"


def test_what_was_tried_is_said_in_words() -> None:
    trial = Experiment("other_precision", written({"a.precision": {"default": "float16"}}), "right")
    trial = dataclasses.replace(trial, cases=2, largest=0.5)
    facts = dict(evidence_facts({"experiments": [trial.record]}))
    text = "precision: {default: float16}: right in 2 cases, off by 0.5 at most"
    assert facts == {"changes that were tried": text}


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("rms", "from 2 to 0.1 of their rms."),
        ("limit", "from 2 to 0.1 times its limit."),
        ("", "from 2 to 0.1."),
    ],
)
def test_a_proof_states_its_own_unit(unit: str, text: str) -> None:
    evidence = {"proven": True, "before": 2.0, "after": 0.1} | ({"error_in": unit} if unit else {})
    assert path_of(evidence).endswith(text)


def test_symptom_and_cause_are_of_the_same_case() -> None:
    assert "in case masked-row" in path_of({})
    leading = dataclasses.replace(OVERFLOW, place=Place(case="smallest"))  # passes
    target = dataclasses.replace(failed_target(), leading=leading)
    path = run_view(build_record(targets=(target,))).targets[0].path
    assert path is not None
    assert "in case typical" in description(path.svg)


def test_what_is_left_out_is_not_said_to_be_unproven_and_passing_at_once() -> None:
    (verification,) = skipped_target().verifications
    passed = dataclasses.replace(verification, status="verified", headline="3 cases")
    without = without_device(passed)
    target = dataclasses.replace(
        skipped_target(), headline=without.headline, verifications=(without,)
    )
    page = render_report(build_record(targets=(target,)))
    assert "its graph passes in simulation" in page
    assert "proves nothing" not in page


def low_target(row: ModulePrecision) -> TargetReport:
    plan = PrecisionResult(LowPrecision("float16"), modules=(row,))
    return dataclasses.replace(verified_target(), plan=plan, size_bytes=500)


def test_a_module_stays_in_float32_for_its_value_and_the_limit_not_for_a_pattern() -> None:
    row = ModulePrecision("a", 0, 2, 0, 100, ("pattern a",), 0.5, 131008.0, "y", "typical")
    (view,) = run_view(build_record(targets=(low_target(row),))).targets
    (why,) = [why for _, why in view.kept]
    assert why == (
        "reaches 1.31e+05 in case typical, which is beyond the 65,504 that float16 holds"
        " (pattern a)"
    )
    small = dataclasses.replace(row, headroom=2.0, largest=32752.0)
    (view,) = run_view(build_record(targets=(low_target(small),))).targets
    assert "is within the 65,504" in view.kept[0][1]


def test_a_size_over_the_weights_says_what_else_the_files_hold() -> None:
    row = ModulePrecision("a", 0, 2, 0, 100)
    record = build_record(targets=(low_target(row),))
    figure = size_measure(record, record.targets[0])
    assert figure is not None
    assert "500 B, 125 % of the float32 weights" in words(figure.svg)
    assert figure.caption is not None
    assert "graph, constants and bindings" in figure.caption
    fits = dataclasses.replace(record.targets[0], size_bytes=400)
    figure = size_measure(record, fits)
    assert figure is not None
    assert not figure.caption


def test_a_repair_is_charged_with_the_effect_on_its_own_target() -> None:
    targets = (failed_target(), verified_target())
    steps = tuple(RepairStep(1, each.name, "N202", "", {}) for each in targets)
    failed, verified = Lineage("before", steps).ended_as(targets)
    assert failed.outcome.startswith(f"{targets[0].name} failed")
    assert verified.outcome == "verified"


def test_no_raw_json_no_null_and_no_word_of_the_store() -> None:
    rounds = [{"case": "typical", "keep_float32": [], "overshoot": None}]
    finding = dataclasses.replace(OVERFLOW, evidence={"rounds": rounds, "trials": rounds})
    target = dataclasses.replace(failed_target(), findings=(finding,))
    page = render_report(build_record(targets=(target,)))
    visible = re.sub(r"(?s)<style.*?</style>|<[^>]+>", " ", page)
    assert "null" not in visible
    assert '"overshoot"' not in page
    assert "&#34;case&#34;" not in page
    assert "case=typical" in visible


def test_what_was_corrected_follows_what_was_found() -> None:
    titles = [
        title for title, _ in evidence_facts({"after": 0, "before": 5, "error_in": "elements"})
    ]
    assert titles == ["elements of the outputs that are not finite", "of them with this corrected"]


def test_values_that_one_target_tried_are_not_said_to_be_untried() -> None:
    whole, part = verified_target(), failed_target()
    verification = whole.verifications[0]
    huge = dataclasses.replace(
        verification.cases[0], case="plain-rows:huge", description="rows with one huge value"
    )
    verification = dataclasses.replace(verification, cases=(*verification.cases, huge))
    whole = dataclasses.replace(whole, verifications=(verification,))
    kinds = {each.kind: each.cases for each in tried_values(build_record(targets=(whole, part)))}
    assert kinds["one huge value"] == (f"plain-rows:huge ({whole.name})",)
    assert "smallest" in kinds["drawn from the samples"]
    alone = {each.kind: each.cases for each in tried_values(build_record(targets=(whole,)))}
    assert alone["one huge value"] == ("plain-rows:huge",)
    neither = {each.kind: each.cases for each in tried_values(build_record(targets=(part,)))}
    assert neither["one huge value"] == ()


def test_stages_are_told_without_the_words_of_the_store() -> None:
    record = build_record()
    stages = tuple(dataclasses.replace(each, reason="in the store") for each in record.stages)
    page = render_report(dataclasses.replace(record, stages=stages))
    table = page[page.index("Stages (") :]
    assert ">reused</span>" in table
    assert "same inputs and tools as before" in table
    assert ">hit</span>" not in table
    assert "in the store" not in table


def test_the_first_line_holds_the_facts_and_failures_come_first() -> None:
    targets = (verified_target(), skipped_target(), failed_target())
    record = build_record(targets=targets, recipe_commit="ab" * 20)
    facts = dict(run_facts(record))
    assert facts["Commit"] == "abababababab checked out"
    assert "torch 2.13.0" in facts["Versions"]
    assert facts["Recipe"] == record.recipe_file
    assert {"Took", "Machine"} <= facts.keys()
    view = run_view(record)
    assert [each.target.status for each in view.targets] == ["failed", "skipped", "verified"]
    page = render_report(record)
    for _, value in view.facts:
        assert value in page
    for command, _ in view.commands:
        assert f"<code>{command}</code>" in page


def test_a_commit_is_read_from_loose_packed_and_detached_heads(tmp_path: Path) -> None:
    assert checked_out_commit(tmp_path) == ""
    git, commit = tmp_path / ".git", "0123456789" * 4
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    inside = tmp_path / "models"
    inside.mkdir()
    assert checked_out_commit(inside) == ""
    (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    assert checked_out_commit(inside) == commit
    (git / "refs" / "heads" / "main").write_text("a" * 40)
    assert checked_out_commit(inside) == "a" * 40
    (git / "HEAD").write_text("b" * 40)
    assert checked_out_commit(inside) == "b" * 40
    (git / "HEAD").write_text("ref: ../../secret")
    assert checked_out_commit(inside) == ""
