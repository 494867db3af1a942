import dataclasses
import math
from typing import Any

import pytest
from records import contract
from small_recipe import recipe

from convkit.host.record.run_record import Verification
from convkit.host.verdict.findings.swapped_or_dead_inputs import with_changes
from convkit.host.verdict.target_verdict import judge
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    ProbeChange,
    ProbeMetrics,
    ReferenceResult,
    RowMetrics,
    TensorMetrics,
    UnmatchedRow,
    VerifyResult,
)

GOOD = TensorMetrics(
    "y",
    8,
    1e-6,
    1e-5,
    1e-7,
    1e-7,
    1.0,
    (0, 0),
    1.0,
    1.000001,
    0,
    0,
    0,
    0,
    0,
    ((0.5, 1e-6), (1.0, 1e-7)),
)
SIZES = {
    "smallest": {"batch": 1, "sequence": 2},
    "typical": {"batch": 2, "sequence": 8},
    "largest": {"batch": 4, "sequence": 16},
}


def verdict(
    outputs: dict[str, tuple[TensorMetrics, ...]] | None = None,
    errors: dict[str, str] | None = None,
    probes: tuple[ProbeMetrics, ...] = (),
    **options: Any,
) -> Verification:
    names = list(SIZES)
    reference = ReferenceResult(tuple(CaseRecord(n, "ladder", n, SIZES[n], 0.1) for n in names), ())
    cases = tuple(
        CaseMetrics(
            n,
            0.1,
            () if n in (errors or {}) else (outputs or {}).get(n, (GOOD,)),
            (errors or {}).get(n),
        )
        for n in names
    )
    chosen = options.pop("recipe", recipe())
    measured = VerifyResult(
        "device",
        None,  # type: ignore[arg-type]
        ("CPU",),
        (),
        options.pop("cases", cases),
        (),
        probes,
    )
    return judge(
        chosen,
        chosen.targets["ort"],
        reference,
        measured,
        stage="verify:ort",
        version=None,
        **options,
    )


def codes(verification: Verification) -> list[str]:
    return [finding.code for finding in verification.findings]


def changed(**changes: Any) -> tuple[TensorMetrics, ...]:
    return (dataclasses.replace(GOOD, **changes),)


def test_all_within_the_limits_is_verified() -> None:
    result = verdict()
    assert result.status == "verified"
    assert result.findings == ()
    assert all(case.passed for case in result.cases)
    assert result.headline == "3 cases, largest absolute error 1e-06"


def test_rows_without_a_counterpart_fail_as_such() -> None:
    confident = UnmatchedRow("missing", (3,), 0.9, 0.4)
    rows = RowMetrics("found", 4, 3, 3, (confident,))
    result = verdict({"typical": changed(rows=rows)})
    assert codes(result) == ["N105"]
    assert "row 3 is missing, with score 0.9, 0.4 from the threshold" in result.headline
    at_the_threshold = dataclasses.replace(confident, margin=5e-5)
    rows = dataclasses.replace(rows, unmatched=(at_the_threshold,))
    assert verdict({"typical": changed(rows=rows)}).status == "verified"


def test_sets_that_are_empty_in_every_case_prove_nothing() -> None:
    def each(rows: RowMetrics) -> dict[str, tuple[TensorMetrics, ...]]:
        return dict.fromkeys(SIZES, changed(rows=rows, elements=0, max_abs=0.0))

    assert codes(verdict(each(RowMetrics("found", 0, 0, 0)))) == ["N104"]
    lost = RowMetrics("found", 2, 0, 0, (UnmatchedRow("missing", (0,), 0.9, 0.4),))
    assert codes(verdict(each(lost))) == ["N105"]


def test_the_headline_is_the_first_failing_case() -> None:
    result = verdict({"typical": changed(max_abs=0.1), "largest": changed(max_abs=0.5)})
    assert result.status == "failed"
    assert codes(result) == ["N101"]
    assert "'typical'" in result.headline
    assert "2 of 3 cases" in result.headline
    assert result.findings[0].place.case == "typical"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"max_abs": math.nan}, "N101"),
        ({"nan_candidate": 1}, "N102"),
        ({"inf_mismatched": 1}, "N102"),
        ({"nan_reference": 3, "nan_candidate": 3}, "N103"),
        ({"elements": 0}, "N104"),
        ({"mismatch": "dtype float16 instead of float32", "mismatch_kind": "dtype"}, "C205"),
        ({"mismatch": "shape [1, 2] instead of [1, 3]", "mismatch_kind": "shape"}, "C207"),
    ],
)
def test_each_way_of_being_wrong_fails_under_its_own_code(
    changes: dict[str, Any], code: str
) -> None:
    result = verdict({"smallest": changed(**changes)})
    assert result.status == "failed"
    assert codes(result) == [code]


def test_nan_of_the_original_is_said_once_as_the_reference_says_it() -> None:
    known = Finding(
        "N103",
        "it begins in log",
        Place(tensor=GOOD.output, case="smallest"),
        {"outputs": [GOOD.output, "other"]},
    )
    both = {"nan_reference": 3, "nan_candidate": 3}
    outputs = (*changed(**both), dataclasses.replace(GOOD, output="other", **both))
    result = verdict({"smallest": outputs}, reference_findings=[known])
    assert result.status == "failed"
    assert [each for each in result.findings if each.code == "N103"] == [known]
    elsewhere = verdict({"typical": changed(**both)}, reference_findings=[known])
    assert [each.message for each in elsewhere.findings] != [known.message]


def test_no_tolerance_is_offered_for_nan() -> None:
    low = recipe(targets={"ort": {"runtime": "onnxruntime", "precision": "float16"}})
    nan = verdict({"smallest": changed(nan_candidate=1)}, recipe=low).findings[0]
    off = verdict({"smallest": changed(max_abs=9.0)}, recipe=low).findings[0]
    assert (nan.code, off.code) == ("N102", "N101")
    assert nan.remedy is not None
    assert off.remedy is not None
    assert nan.remedy.change == off.remedy.change
    assert "tolerance" in off.remedy.text
    assert "tolerance" not in nan.remedy.text


def test_no_case_at_all_fails() -> None:
    result = verdict(cases=())
    assert result.status == "failed"
    assert codes(result) == ["N104"]


def test_an_output_that_was_not_compared_fails() -> None:
    result = verdict({"typical": ()})
    assert result.status == "failed"
    assert codes(result) == ["C201"]
    assert "typical" in result.findings[0].message


def test_a_runtime_failure_on_one_case_is_told_with_its_sizes() -> None:
    result = verdict(errors={"smallest": "bad reshape"})
    assert result.status == "failed"
    assert "E206" in codes(result)
    assert "batch=1, sequence=2" in result.headline


def test_an_axis_that_runs_at_one_size_only_is_baked_in() -> None:
    result = verdict(errors={"smallest": "bad reshape", "largest": "bad reshape"})
    baked = [finding for finding in result.findings if finding.code == "C106"]
    assert [finding.evidence["axis"] for finding in baked] == ["batch", "sequence"]
    assert "'ids'" in baked[0].message
    assert result.headline.startswith("E206"), "it may be either axis, or neither"


def test_an_axis_leads_if_nothing_else_differs_between_a_case_that_fails_and_one_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SIZES, "wide", {"batch": 4, "sequence": 8})
    result = verdict(errors=dict.fromkeys(("smallest", "largest", "wide"), "bad reshape"))
    assert result.headline.startswith("C106 axis 'batch'")
    assert [f.evidence["proven"] for f in result.findings if f.code == "C106"] == [True]


def test_an_axis_that_the_stage_has_tried_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "wide", {"batch": 4, "sequence": 8})
    tried = Finding("C106", "it refuses 1", evidence={"axis": "batch", "proven": True})
    errors = dict.fromkeys(("smallest", "largest", "wide"), "bad reshape")
    result = verdict(errors=errors, stage_findings=(tried,))
    assert [f for f in result.findings if f.code == "C106"] == [tried]


def test_an_axis_is_baked_in_at_the_size_it_was_traced_at_when_no_case_ran() -> None:
    errors = dict.fromkeys(SIZES, "bad reshape")
    result = verdict(errors=errors, example_sizes={"batch": 2, "sequence": 5})
    baked = [finding.evidence["axis"] for finding in result.findings if finding.code == "C106"]
    assert baked == ["sequence"]  # batch 2 failed as well, so its size is not what is wrong


def test_failures_at_every_size_are_no_baked_axis() -> None:
    assert "C106" not in codes(verdict(errors=dict.fromkeys(SIZES, "no kernel")))


WRONG = {name: changed(max_abs=0.9) for name in SIZES}


def probe(kind: Any, *tensors: str, **changes: float | None) -> ProbeMetrics:
    values: dict[str, float | None] = {
        "moved_reference": 1.0,
        "moved_candidate": 1.0,
        "matches_base": 0.9,
        "matches_probe": 0.9,
        "base_error": 0.9,
    }
    change = ProbeChange(kind, tensors)
    return ProbeMetrics(change.name, **(values | changes), change=change)


def test_right_when_crossed_and_wrong_as_declared_is_named_with_both_orders() -> None:
    result = verdict(WRONG, probes=(probe("crossed", "mask", "types", matches_base=1e-6),))
    assert codes(result)[0] == "C110"
    assert "Declared order: ids, mask, types" in result.headline
    assert "behaves as: ids, types, mask" in result.headline


def test_crossed_is_named_where_the_model_even_refuses_to_run_as_declared() -> None:
    result = verdict(
        WRONG, probes=(probe("crossed", "ids", "types", matches_base=0.0, base_error=None),)
    )
    assert codes(result)[0] == "C110"
    assert "as declared, the model refuses to run" in result.headline


def test_right_both_ways_is_not_exchanged() -> None:
    result = verdict(
        probes=(probe("crossed", "mask", "types", matches_base=1e-6, base_error=1e-6),)
    )
    assert result.status == "verified"


def test_wrong_both_ways_is_not_exchanged() -> None:
    assert codes(verdict(WRONG, probes=(probe("crossed", "mask", "types"),))) == ["N101"]


def test_outputs_that_carry_each_other_s_values_are_named() -> None:
    result = verdict(WRONG, probes=(probe("outputs", "y", "z", matches_base=1e-6),))
    assert codes(result)[0] == "C208"
    assert "'y' and 'z'" in result.headline
    assert codes(verdict(WRONG, probes=(probe("outputs", "y", "z"),))) == ["N101"]
    alike = probe("outputs", "y", "z", matches_base=1e-6, moved_reference=1e-7)
    assert codes(verdict(WRONG, probes=(alike,))) == [
        "N101"
    ]  # the original's two are the same: nothing to exchange


def test_merged_inputs_are_named_and_their_dead_one_not_twice() -> None:
    probes = (
        probe("perturbed", "types", moved_candidate=0.0),
        probe("merged", "mask", "types", matches_probe=1e-6),
    )
    result = verdict(WRONG, probes=probes)
    assert codes(result) == ["C109", "N101"]
    assert result.findings[0].place.tensor == "types"


def test_a_probe_that_cannot_tell_merged_from_right_says_nothing() -> None:
    probes = (probe("merged", "mask", "types", matches_probe=1e-6, moved_reference=1e-7),)
    assert codes(verdict(WRONG, probes=probes)) == ["N101"]


def test_names_with_colons_are_names() -> None:
    inputs = [
        {"name": name, "dtype": "float32", "shape": ["batch", "sequence"]}
        for name in ("ids:0", "mask:0", "types:0")
    ]
    result = verdict(
        WRONG,
        probes=(probe("crossed", "mask:0", "types:0", matches_base=1e-6),),
        recipe=recipe(inputs=inputs),
    )
    assert result.leading is not None
    assert (result.leading.code, result.leading.place.tensor) == ("C110", "mask:0")
    assert "The model behaves as: ids:0, types:0, mask:0" in result.headline


def test_probes_of_older_records_are_found_by_their_names() -> None:
    made = (probe("perturbed", "input_ids"), probe("merged", "attention_mask", "input_ids"))
    older = [dataclasses.replace(each, change=None) for each in made]
    assert with_changes(older, contract()) == made
    unknown = dataclasses.replace(older[0], probe="perturbed:gone")
    assert with_changes([unknown], contract()) == (unknown,)


def test_an_input_without_influence_is_named_even_where_parity_holds() -> None:
    result = verdict(probes=(probe("perturbed", "types", moved_candidate=0.0, base_error=1e-6),))
    assert result.status == "failed"
    assert codes(result) == ["C108"]


@pytest.mark.parametrize(
    ("precision", "tolerance", "moved", "found"),
    [
        ("float32", {"max_abs": 1e-4}, 1e-6, ["C108"]),
        ("float16", {"max_abs": 1e-4}, 1e-6, []),  # below what the limit asks of a type that rounds
        ("float16", {"max_abs": 1e-4}, 1.0, ["C108"]),
        ("float32", {"nrmse": 0.01}, 1e-6, ["C108"]),
        ("float16", {"nrmse": 0.01}, 1e-6, []),  # below the type's steps at the outputs' size
        ("float16", {"nrmse": 0.01}, 1.0, ["C108"]),
    ],
)
def test_an_effect_that_a_low_precision_rounds_away_is_no_dead_input(
    precision: str, tolerance: dict[str, float], moved: float, found: list[str]
) -> None:
    targets = {"ort": {"runtime": "onnxruntime", "precision": precision}}
    dead = dataclasses.replace(
        probe("perturbed", "types", moved_candidate=0.0, moved_reference=moved, base_error=1e-6),
        moved_share=moved,
    )
    measured = dataclasses.replace(GOOD, reference_rms=1.0, nrmse=1e-6)
    result = verdict(
        dict.fromkeys(SIZES, (measured,)),
        probes=(dead,),
        recipe=recipe(targets=targets, verify={"tolerance": tolerance}),
    )
    assert [code for code in codes(result) if code == "C108"] == found


@pytest.mark.parametrize(("share", "found"), [(7e-5, []), (0.1, ["C108"]), (None, ["C108"])])
def test_an_effect_counts_in_parts_of_the_output_that_it_moves(
    share: float | None, found: list[str]
) -> None:
    """Beside a pressure in pascals stands a share of one, whose steps say nothing of the first."""
    targets = {"ort": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}}
    dead = dataclasses.replace(
        probe("perturbed", "types", moved_candidate=0.0, moved_reference=940.0, base_error=1e-6),
        moved_share=share,
    )
    measured = dataclasses.replace(GOOD, reference_rms=0.3, nrmse=1e-6)
    result = verdict(
        dict.fromkeys(SIZES, (measured,)),
        probes=(dead,),
        recipe=recipe(targets=targets, verify={"tolerance": {"nrmse": 0.2}}),
    )
    assert [code for code in codes(result) if code == "C108"] == found


def test_an_input_dead_in_the_original_too_is_not_the_conversion_s_fault() -> None:
    result = verdict(
        probes=(
            probe("perturbed", "types", moved_candidate=0.0, moved_reference=0.0, base_error=0.0),
        )
    )
    assert result.status == "verified"


def test_a_probe_that_could_not_run_says_nothing() -> None:
    refused = dict.fromkeys(("moved_reference", "moved_candidate", "matches_base", "matches_probe"))
    assert codes(verdict(WRONG, probes=(probe("crossed", "ids", "types", **refused),))) == ["N101"]


def test_the_nearest_tolerance_stands_alone() -> None:
    chosen = recipe(
        verify={"tolerance": {"max_abs": 1e-4, "cosine": 0.99999}},
        targets={"ort": {"runtime": "onnxruntime", "tolerance": {"cosine": 0.9}}},
    )
    assert verdict(WRONG, recipe=chosen).status == "verified"


def test_a_tolerance_can_differ_by_output() -> None:
    chosen = recipe(verify={"tolerance": {"max_abs": 1e-4}, "outputs": {"y": {"max_abs": 1.0}}})
    assert verdict(WRONG, recipe=chosen).status == "verified"


@pytest.mark.parametrize(
    ("precision", "change"),
    [
        ("float32", {}),
        ("float16", {"default": "float16", "keep_float32": "auto"}),
        (
            {"default": "float16", "saturate": True, "keep_float32": ["a"]},
            {"default": "float16", "saturate": True, "keep_float32": "auto"},
        ),
        ({"quantize": "dynamic-int8"}, {"quantize": "dynamic-int8", "keep_float32": "auto"}),
        ({"default": "float16", "keep_float32": "auto"}, {}),
    ],
)
def test_a_low_precision_that_is_off_is_offered_the_search(
    precision: Any, change: dict[str, Any]
) -> None:
    chosen = recipe(targets={"ort": {"runtime": "onnxruntime", "precision": precision}})
    found = verdict({"typical": (dataclasses.replace(GOOD, max_abs=1.0),)}, recipe=chosen)
    (finding,) = [finding for finding in found.findings if finding.code == "N101"]
    assert finding.remedy is not None
    assert finding.remedy.change == ({"targets.ort.precision": change} if change else {})


def test_an_output_that_is_declared_empty_in_a_case_is_compared_in_others() -> None:
    axes = {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "sequence": {"min": 0, "typical": 8, "max": 16},
    }
    empty = changed(elements=0, max_abs=math.nan, cosine=math.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "smallest", {"batch": 1, "sequence": 0})
        assert verdict({"smallest": empty}, recipe=recipe(axes=axes)).status == "verified"
        # An empty output that is not declared empty, or of another shape, fails as before.
        assert codes(verdict({"typical": empty}, recipe=recipe(axes=axes))) == ["N104"]
        wrong = changed(elements=0, mismatch="shape", mismatch_kind="shape")
        assert codes(verdict({"smallest": wrong}, recipe=recipe(axes=axes))) == ["C207"]


def test_an_output_that_is_empty_in_every_case_proves_nothing() -> None:
    axes = {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "sequence": {"min": 0, "typical": 1, "max": 1},
    }
    empty = changed(elements=0, max_abs=math.nan, cosine=math.nan)
    with pytest.MonkeyPatch.context() as patch:
        for name in SIZES:
            patch.setitem(SIZES, name, {"batch": 1, "sequence": 0})
        chosen = recipe(axes=axes)
        assert codes(verdict(dict.fromkeys(SIZES, empty), recipe=chosen)) == ["N104"]
