import dataclasses
import json
import math

import pytest
from records import build_record, failed_target, non_finite_record, stages, verified_record

from convkit.host.track.mlflow_batches import batches
from convkit.host.track.mlflow_limits import PARAMS_PER_BATCH, clipped, entry_name
from convkit.host.track.run_columns import statuses_in, verdict_text
from convkit.host.track.run_description import summary_note
from convkit.host.track.run_entries import MetricPoint, child_entries, parent_entry
from convkit.protocol.errors import TrackingError
from convkit.protocol.findings.finding import Finding


def points(entry):
    return {point.name: point.value for point in entry.points if point.step == 0}


def test_the_parent_tells_the_run():
    parent = parent_entry(build_record())
    assert parent.status == "FAILED"
    assert parent.ended - parent.started == pytest.approx(21.5)
    assert parent.tags["convkit.run"] == "20251009-085320-3f9a"
    assert parent.tags["convkit.findings"] == "C110 E102 N101"
    assert parent.tags["convkit.targets"] == (
        "ort-cpu verified, ort-optimized failed, ort-cuda skipped"
    )
    assert statuses_in(parent.tags["convkit.targets"])["ort-cuda"] == "skipped"
    assert parent.tags["verdict"] == ("failed: ort-optimized; skipped: ort-cuda; verified: ort-cpu")
    leading = dataclasses.replace(failed_target(), leading=Finding("C110", "swapped"))
    assert verdict_text(build_record(targets=(leading,))) == "failed: ort-optimized (C110)"
    assert parent.tags["worst_error"].startswith("ort-optimized: ")
    assert len(parent.tags) <= 14
    assert not any(value.startswith(("{", "[")) for value in parent.tags.values())
    found = points(parent)
    assert found["ort-cpu/max_abs_err"] == pytest.approx(1.82e-5)
    assert found["ort-cpu/share_of_limit"] == pytest.approx(0.182)
    assert found["ort-cpu/size_bytes"] == 90_912_456
    assert found["ort-optimized/cosine"] == 0.81
    assert found["size_mib"] > found["ort-cpu/size_bytes"] / 2**20
    assert "error_of_limit" not in found  # NaN: there is no figure, and the tag says so
    assert found["ort-optimized/non_finite"] == 384
    assert (
        found["run/targets_verified"],
        found["run/targets_failed"],
        found["run/targets_skipped"],
    ) == (1, 1, 1)
    assert "ort-cuda/max_abs_err" not in found


def test_params_are_flat_and_as_the_user_wrote_them():
    params = parent_entry(build_record()).params
    assert params["export.opset"] == "18"
    assert params["verify.tolerance.max_abs"] == "1.0e-4"
    assert params["targets.ort-cpu.versions"] == '["==1.21.*", "==1.31.*"]'
    assert params["inputs.input_ids"] == "int64[batch, sequence]"
    assert params["tools.torch"] == "2.13.0"
    assert params["tools.onnxruntime"] == "1.31.0, 1.21.0"
    assert "description" not in params


@pytest.mark.parametrize("text", ["a: [1", "just words"])
def test_a_record_whose_recipe_is_no_recipe_is_refused(text):
    with pytest.raises(TrackingError, match=r"run 20251009-085320-3f9a is not"):
        parent_entry(build_record(recipe_text=text))


def test_every_stage_has_an_entry_and_skipped_is_not_finished():
    children = {child.name: child for child in child_entries(build_record())}
    assert list(children) == [stage.id for stage in stages()]
    assert children["reference"].status == "FINISHED"
    assert children["reference"].started == children["reference"].ended
    assert children["verify:ort-cpu@1.31.0"].status == "FINISHED"
    assert children["verify:ort-cpu@1.31.0"].tags["verdict"] == "ort-cpu verified"
    assert points(children["verify:ort-cpu@1.31.0"])["error_of_limit"] == pytest.approx(0.182)
    assert max(len(child.tags) for child in children.values()) <= 10
    assert children["verify:ort-optimized"].status == "FAILED"
    assert children["build:ort-cuda"].status == "SCHEDULED"
    assert children["verify:ort-cuda"].status == "SCHEDULED"


def test_a_verification_gives_the_worst_and_every_case_as_a_step():
    children = {child.name: child for child in child_entries(build_record())}
    child = children["verify:ort-cpu@1.21.0"]
    name = "verify/last_hidden_state"
    assert points(child)[f"{name}/max_abs_err"] == pytest.approx(9.1e-6)
    steps = [(p.step, p.value) for p in child.points if p.name == f"{name}/by_case/max_abs_err"]
    assert steps == [
        (0, pytest.approx(1.1e-6)),
        (1, pytest.approx(4.2e-6)),
        (2, pytest.approx(9.1e-6)),
    ]
    assert [row[0] for row in child.table.rows] == ["smallest", "typical", "padded"]
    assert all(len(row) == len(child.table.columns) for row in child.table.rows)


def test_a_verification_without_a_stage_still_has_an_entry():
    record = build_record(stages=())
    names = [child.name for child in child_entries(record)]
    assert names == [
        "verify:ort-cpu@1.21.0",
        "verify:ort-cpu@1.31.0",
        "verify:ort-optimized",
        "verify:ort-cuda",
    ]


def test_figures_that_are_no_numbers_are_counted_and_never_flattered():
    record = non_finite_record()
    parent = parent_entry(record)
    child = next(child for child in child_entries(record) if child.name == "verify:ort-optimized")
    assert all(math.isfinite(point.value) for point in (*parent.points, *child.points))
    assert points(parent)["ort-optimized/max_abs_err_undefined"] == 2
    # One case has a fine cosine: as 'the worst' it would hide the one that has none.
    assert "ort-optimized/cosine" not in points(parent)
    assert points(parent)["ort-optimized/cosine_undefined"] == 1
    assert points(parent)["ort-optimized/non_finite"] == 7
    json.dumps(child.table.rows, allow_nan=False)


def test_the_note_is_a_table_of_targets_with_findings_and_what_was_left_out():
    note = summary_note(build_record())
    rows = [line for line in note.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert {row.count("|") for row in rows} == {rows[0].count("|")}
    assert "**C110**" in note
    assert "### Not verified" in note
    assert "CUDA" in note


def test_nothing_in_a_note_acts_as_markup():
    note = summary_note(
        build_record(description="a | <script>alert(1)</script> [x](javascript:y)\n\n# big")
    )
    assert "<script>" not in note
    assert "\\[x\\](javascript" in note
    assert "\n# big" not in note


@pytest.mark.parametrize(
    "name", ["verify/a/max_abs_err", "tools.torch", "build:x@1".replace("@", "-")]
)
def test_plain_names_stay(name):
    assert entry_name(name) == name


@pytest.mark.parametrize(
    "name", ["verify/logits[0]/x", "a~b", "verify/../x", "a//b", "/a", "a b", "é" * 400, "x" * 400]
)
def test_other_names_become_ones_that_mlflow_takes(name):
    from mlflow.utils.validation import (
        _validate_metric_name,
        _validate_param_name,
        _validate_tag_name,
    )

    clean = entry_name(name)
    _validate_metric_name(clean)
    _validate_param_name(clean)
    _validate_tag_name(clean)
    assert len(clean) <= 250
    assert clean == entry_name(name)


def test_names_that_differ_stay_different():
    assert entry_name("a[0]") != entry_name("a{0}")


def test_long_texts_are_cut_with_a_marker():
    text = clipped("x" * 9000, 6000)
    assert len(text) == 6000
    assert text.endswith("[9000 characters; the rest is in result.json]")
    assert clipped("x" * 6000, 6000) == "x" * 6000


def test_batches_hold_everything_once_and_stay_small():
    params = {f"p{i}": "v" * 5000 for i in range(250)}
    tags = {f"t{i}": "v" for i in range(250)}
    values = [MetricPoint(f"m{i}", 1.0) for i in range(2500)]
    cut = list(batches(params, tags, values))
    assert [pair for batch in cut for pair in batch.params] == list(params.items())
    assert [pair for batch in cut for pair in batch.tags] == list(tags.items())
    assert [point for batch in cut for point in batch.points] == values
    for batch in cut:
        assert len(batch.params) <= PARAMS_PER_BATCH
        assert len(batch.tags) <= PARAMS_PER_BATCH
        assert len(batch.params) + len(batch.tags) + len(batch.points) <= 1000
        assert sum(len(value) for _, value in batch.params) < 1_000_000


def test_nothing_gives_no_batch():
    assert list(batches({}, {}, [])) == []


def test_a_verified_run_is_finished():
    assert parent_entry(verified_record()).status == "FINISHED"


def test_a_run_is_named_by_its_verdict_and_begins_with_what_failed():
    record = build_record()
    assert parent_entry(record).name == f"failed 3f9a ort-optimized: {record.recipe} {record.id}"
    blamed = dataclasses.replace(record.targets[1], leading=Finding("N202", "it overflows"))
    named = parent_entry(dataclasses.replace(record, targets=(blamed,))).name
    assert named.startswith("failed N202 3f9a ort-optimized: ")
    note = summary_note(record)
    assert "Next: **convkit" in note.partition("\n")[0]
    assert note.index("**ort-optimized**: ") < note.index("| target |")
    green = verified_record()
    assert parent_entry(green).name == f"verified 3f9a: {green.recipe} {green.id}"
    targets = tuple(
        dataclasses.replace(record.targets[1], name=name) for name in ("a", "b", "c", "d", "e")
    )
    many = parent_entry(dataclasses.replace(record, targets=targets)).name
    assert many.startswith("failed 3f9a a, b, c and 2 more: ")
