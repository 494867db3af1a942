"""`convkit diff`: what differs is named, and nothing else."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
from past_runs import MODEL, RECIPE, make_run
from records import DIFFERS, build_record, verified_record
from run_folders import write_run
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.differences.built_file_difference import describe_difference
from convkit.host.audit.differences.run_difference import RunChange, RunDifference, compare_runs
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import ConvkitError

A, B = "20251009-085320-3f9a", "20251010-085320-0001"
MATTERS = (
    "recipe",
    "sources",
    "contract",
    "tools",
    "locks",
    "built",
    "metrics",
    "verdicts",
    "new_findings",
    "gone_findings",
)


def changed_parts(difference: RunDifference) -> set[str]:
    return {name for name in MATTERS if getattr(difference, name)}


def compare(folder: Path, a, b) -> RunDifference:
    return compare_runs(write_run(folder, a), write_run(folder, dataclasses.replace(b, id=B)))


def replace_metric(record, target: str, case: str, **figures):
    """Return a record with other figures for one case of one target (under its first release)."""

    def with_figures(found):
        output = found.outputs[0]
        metrics = dataclasses.replace(output.metrics, **figures)
        return dataclasses.replace(found, outputs=(dataclasses.replace(output, metrics=metrics),))

    def with_case(verification):
        cases = tuple(
            with_figures(each) if each.case == case else each for each in verification.cases
        )
        return dataclasses.replace(verification, cases=cases)

    def with_first(found):
        first, *rest = found.verifications
        return dataclasses.replace(found, verifications=(with_case(first), *rest))

    targets = tuple(with_first(each) if each.name == target else each for each in record.targets)
    return dataclasses.replace(record, targets=targets)


def test_the_same_run_twice_is_the_same(tmp_path: Path) -> None:
    later = dataclasses.replace(build_record(), started=1.0, ended=2.0, command=("other",))
    difference = compare(tmp_path, build_record(), later)
    assert difference.same
    assert len(difference.same_findings) == 3


def test_one_recipe_key(tmp_path: Path) -> None:
    text = build_record().recipe_text
    other = build_record(recipe_text=text.replace("opset: 18", "opset: 17") + "# a comment\n")
    difference = compare(tmp_path, build_record(), other)
    assert changed_parts(difference) == {"recipe"}
    assert difference.recipe == (RunChange("export.opset", "18", "17"),)


def test_a_comment_in_the_recipe_is_no_difference(tmp_path: Path) -> None:
    other = build_record(recipe_text="# a comment\n" + build_record().recipe_text)
    assert compare(tmp_path, build_record(), other).same


def test_a_key_that_is_new_and_one_that_is_gone(tmp_path: Path) -> None:
    text = build_record().recipe_text
    other = text.replace("max_abs: 1.0e-4, ", "").replace("verify:\n", "verify:\n  seed: 4\n")
    difference = compare(tmp_path, build_record(), build_record(recipe_text=other))
    assert set(difference.recipe) == {
        RunChange("verify.tolerance.max_abs", "0.0001", None),
        RunChange("verify.seed", None, "4"),
    }


def test_one_tool_version_names_the_stages(tmp_path: Path) -> None:
    record = build_record()
    stages = tuple(
        (
            dataclasses.replace(stage, versions={**stage.versions, "torch": "2.14.0"})
            if stage.id == "export"
            else stage
        )
        for stage in record.stages
    )
    difference = compare(tmp_path, record, dataclasses.replace(record, stages=stages))
    assert changed_parts(difference) == {"tools"}
    tool = difference.tools[0]
    assert (tool.package, tool.before, tool.after, tool.stages) == (
        "torch",
        "2.13.0",
        "2.14.0",
        ("export",),
    )


def test_one_metric_with_its_ratio(tmp_path: Path) -> None:
    other = replace_metric(build_record(), "ort-cpu", "padded", max_abs=1.82e-5)
    difference = compare(tmp_path, build_record(), other)
    assert changed_parts(difference) == {"metrics"}
    (figure,) = difference.metrics
    assert (figure.target, figure.case, figure.metric) == ("ort-cpu@1.21.0", "padded", "max_abs")
    assert figure.ratio == pytest.approx(2.0)


def test_not_a_number_is_itself(tmp_path: Path) -> None:
    spoilt = replace_metric(build_record(), "ort-cpu", "padded", cosine=math.nan)
    assert compare(tmp_path / "same", spoilt, spoilt).same
    difference = compare(tmp_path / "other", build_record(), spoilt)
    assert changed_parts(difference) == {"metrics"}
    assert difference.metrics[0].ratio is None


def test_time_is_told_and_is_no_difference(tmp_path: Path) -> None:
    record = build_record()
    target = record.targets[0]
    first, *rest = target.verifications
    slow = tuple(dataclasses.replace(case, seconds=case.seconds * 3) for case in first.cases)
    target = dataclasses.replace(
        target, verifications=(dataclasses.replace(first, cases=slow), *rest)
    )
    other = dataclasses.replace(record, targets=(target, *record.targets[1:]))
    difference = compare(tmp_path, record, other)
    assert difference.same
    assert [figure.ratio for figure in difference.latencies] == pytest.approx([3.0, 3.0, 3.0])


def test_findings_are_new_gone_or_the_same_whatever_figures_they_hold(tmp_path: Path) -> None:
    before = build_record()
    failed = before.targets[1]
    (verification,) = failed.verifications
    again = dataclasses.replace(DIFFERS, message="'last_hidden_state' differs by 0.29")
    moved = dataclasses.replace(DIFFERS, place=dataclasses.replace(DIFFERS.place, case="padded"))
    other = dataclasses.replace(verification, findings=(again, moved))
    targets = (
        before.targets[0],
        dataclasses.replace(failed, verifications=(other,)),
        before.targets[2],
    )
    difference = compare(tmp_path, before, dataclasses.replace(before, targets=targets))
    assert [(each.code, "padded" in each.place) for each in difference.new_findings] == [
        ("N101", True)
    ]
    assert [each.code for each in difference.gone_findings] == ["C110"]
    assert {each.code for each in difference.same_findings} == {"N101", "E102"}


def test_verdicts_of_targets_verifications_and_cases(tmp_path: Path) -> None:
    record = build_record()
    failed = record.targets[1]
    (verification,) = failed.verifications
    cases = tuple(
        dataclasses.replace(case, passed=True, outputs=tuple(
            dataclasses.replace(output, passed=True, failures=()) for output in case.outputs))
        for case in verification.cases
    )  # fmt: skip
    verified = dataclasses.replace(verification, status="verified", cases=cases)
    healed = dataclasses.replace(failed, status="verified", verifications=(verified,))
    targets = (record.targets[0], healed, record.targets[2])
    difference = compare(tmp_path, record, dataclasses.replace(record, targets=targets))
    assert changed_parts(difference) == {"verdicts"}
    assert RunChange("ort-optimized", "failed", "verified") in difference.verdicts
    assert (
        RunChange("verify:ort-optimized.typical", "failed: cosine, max_abs", "passed")
        in difference.verdicts
    )


def test_a_target_that_only_one_run_has(tmp_path: Path) -> None:
    difference = compare(tmp_path, build_record(), verified_record())
    assert RunChange("ort-cuda", "skipped", None) in difference.verdicts
    assert {change.after for change in difference.built} == {None}


def test_built_files_and_locks_by_digest(tmp_path: Path) -> None:
    a = write_run(tmp_path, build_record())
    b = write_run(tmp_path, build_record(id=B))
    for folder, text in ((a, "torch==2.13.0\n"), (b, "torch==2.14.0\n")):
        (folder / "locks").mkdir()
        (folder / "locks" / "export.txt").write_text(text)
    model = b / "models" / "ort-optimized" / "model.onnx"
    model.write_bytes(model.read_bytes() + b"more")
    difference = compare_runs(a, b)
    assert changed_parts(difference) == {"locks", "built"}
    assert [change.path for change in difference.locks] == ["export"]
    (built,) = difference.built
    assert built.path == "models/ort-optimized/model.onnx"
    assert "+4 bytes" in built.description[0]


def test_real_runs_that_differ_by_a_key_and_by_the_model(
    tmp_path: Path, finished: RunOutcome
) -> None:
    home = tmp_path / "home"
    first = make_run(home)
    again = make_run(home, verify={"seed": 11, "tolerance": {"max_abs": 1e-6}})
    difference = compare_runs(first.folder, again.folder)
    assert changed_parts(difference) == {"recipe"}
    assert difference.recipe == (RunChange("verify.tolerance.max_abs", "1e-05", "1e-06"),)
    other = make_run(home, MODEL.replace("tanh", "sigmoid"))
    difference = compare_runs(first.folder, other.folder)
    assert {"sources", "built", "metrics"} <= changed_parts(difference)
    assert [change.path for change in difference.sources] == ["source model.py:build"]
    assert not difference.recipe
    assert "models/ort/model.onnx" in [change.path for change in difference.built]
    assert compare_runs(first.folder, finished.folder).same  # made apart, from the same recipe
    done = CliRunner().invoke(app, ["diff", first.record.id, again.record.id, "--home", str(home)])
    assert done.exit_code == 1
    assert "verify.tolerance.max_abs: 1e-05 -> 1e-06" in done.output
    assert RECIPE["verify"]["tolerance"] == {"max_abs": 1e-5}


def test_the_command_line(tmp_path: Path) -> None:
    write_run(tmp_path, build_record())
    write_run(tmp_path, replace_metric(build_record(id=B), "ort-cpu", "padded", max_abs=math.inf))
    same = CliRunner().invoke(app, ["diff", A, A, "--home", str(tmp_path)], env={"COLUMNS": "200"})
    assert (same.exit_code, "no difference that matters" in same.output) == (0, True)
    done = CliRunner().invoke(app, ["diff", A, B, "--home", str(tmp_path), "--json"])
    assert done.exit_code == 1
    told = json.loads(done.output, parse_constant=pytest.fail)
    assert told["same"] is False
    assert told["metrics"][0]["after"] == "inf"


def test_a_run_that_cannot_be_read_is_an_error_not_a_difference(tmp_path: Path) -> None:
    a, b = write_run(tmp_path, build_record()), write_run(tmp_path, build_record(id=B))
    (b / "result.json").write_text("{")
    with pytest.raises(ConvkitError, match=B):
        compare_runs(a, b)


def test_describe_difference_says_where_bytes_part(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"0123456789")
    assert describe_difference(a, b) == []
    b.write_bytes(b"0123456789")
    assert describe_difference(a, b) == []
    b.write_bytes(b"01234x6789")
    assert describe_difference(a, b) == ["the first difference is at byte 5 (from 0)"]
    b.write_bytes(b"0123")
    assert describe_difference(a, b) == [
        "10 B became 4 B (-6 bytes)",
        "the first difference is at byte 4 (from 0)",
    ]


def test_figures_are_told_apart(tmp_path: Path) -> None:
    close = replace_metric(build_record(), "ort-cpu", "padded", cosine=1.0 - 1e-11)
    write_run(tmp_path, replace_metric(build_record(), "ort-cpu", "padded", cosine=1.0))
    write_run(tmp_path, dataclasses.replace(close, id=B))
    done = CliRunner().invoke(app, ["diff", A, B, "--home", str(tmp_path)], env={"COLUMNS": "200"})
    assert "cosine 1 -> 0.99999999999" in done.output


def test_the_last_digit_of_a_figure_is_no_difference(tmp_path: Path) -> None:
    once = replace_metric(build_record(), "ort-cpu", "padded", cosine=0.9999999999999998)
    again = replace_metric(build_record(), "ort-cpu", "padded", cosine=0.9999999999999997)
    assert compare(tmp_path / "last digit", once, again).same
    other = replace_metric(build_record(), "ort-cpu", "padded", cosine=0.99999999999)
    assert changed_parts(compare(tmp_path / "tenth digit", once, other)) == {"metrics"}


AVX512 = {"processor": "One", "processor_features": "x86_64 avx2 avx512f avx512_vnni"}
AVX2 = {"processor": "Other", "processor_features": "x86_64 avx2"}


def on(record, host: dict[str, str], **figures):
    """Return a record of another processor, with other figures for its first target's first
    case.
    """
    moved = dataclasses.replace(record, host=record.host | host)
    target = record.targets[0]
    case = target.verifications[0].cases[0].case
    return replace_metric(moved, target.name, case, **figures) if figures else moved


def first_figures(record):
    return record.targets[0].verifications[0].cases[0].outputs[0].metrics


def halved(record) -> dict[str, float]:
    metrics = first_figures(record)
    return {name: getattr(metrics, name) * 0.6 for name in ("max_abs", "mean_abs", "rms")}


def test_rounding_on_another_processor_is_neither_the_same_nor_different(tmp_path: Path) -> None:
    record = verified_record()
    found = compare(tmp_path, on(record, AVX512), on(record, AVX2, **halved(record)))
    assert (found.relation, found.same, found.elsewhere) == ("WITHIN_ROUNDING", True, True)
    assert found.metrics == ()
    assert {figure.metric for figure in found.rounding} == {"max_abs"}


def test_the_same_figures_on_one_kind_of_processor_differ(tmp_path: Path) -> None:
    record = verified_record()
    other_name = AVX512 | {"processor": "Third"}
    found = compare(tmp_path, on(record, AVX512), on(record, other_name, **halved(record)))
    assert (found.relation, found.elsewhere) == ("DIFFERENT", False)
    assert found.rounding == ()


def test_drift_on_another_processor_is_a_difference(tmp_path: Path) -> None:
    record = verified_record()
    drifted = on(record, AVX2, max_abs=first_figures(record).max_abs * 90)
    found = compare(tmp_path, on(record, AVX512), drifted)
    assert (found.relation, found.same) == ("DIFFERENT", False)
    assert [figure.metric for figure in found.metrics] == ["max_abs"]


def test_identical_figures_of_another_processor_are_the_same(tmp_path: Path) -> None:
    found = compare(tmp_path, on(verified_record(), AVX512), on(verified_record(), AVX2))
    assert found.relation == "SAME"


def test_int8_figures_of_other_integer_kernels_are_listed_and_not_compared(tmp_path: Path) -> None:
    record = verified_record()
    first, *rest = record.targets
    int8 = dataclasses.replace(first, precision="dynamic-int8", device="cpu")
    device = tuple(dataclasses.replace(each, evidence="device") for each in int8.verifications)
    int8 = dataclasses.replace(int8, verifications=device)
    record = dataclasses.replace(record, targets=(int8, *rest))
    drifted = on(record, AVX2, max_abs=first_figures(record).max_abs * 90)
    found = compare(tmp_path, on(record, AVX512), drifted)
    assert (found.relation, found.metrics) == ("WITHIN_ROUNDING", ())
    assert [figure.metric for figure in found.incomparable] == ["max_abs"]


def test_the_command_names_the_class(tmp_path: Path) -> None:
    record = verified_record()
    a = write_run(tmp_path, on(record, AVX512))
    b = write_run(tmp_path, dataclasses.replace(on(record, AVX2, **halved(record)), id=B))
    done = CliRunner().invoke(app, ["diff", str(a), str(b)], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "equal within rounding, recorded on another processor (WITHIN_ROUNDING)" in done.output
    assert "Equal within rounding, on another processor" in done.output
    done = CliRunner().invoke(app, ["diff", str(a), str(b), "--json"])
    assert json.loads(done.output)["relation"] == "WITHIN_ROUNDING"
