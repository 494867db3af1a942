"""Which remedies a repair applies, in which order, and how they are made one change."""

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import build_record
from small_recipe import recipe

from convkit.host.record.run_record import RunRecord, TargetReport, Verification
from convkit.host.repair.remedy_selection import Proposal, merge_values, narrowed, propose
from convkit.protocol.findings.finding import Finding, Remedy

CONTENT: dict[str, Any] = recipe(
    targets={
        "ort": {"runtime": "onnxruntime", "precision": "float16"},
        "own": {
            "runtime": "onnxruntime",
            "export": {"exporter": "torchscript"},
            "versions": ["==1.31.*"],
        },
    }
).dump()
PRECISION = "targets.ort.precision"


def finding(
    code: str, change: dict[str, Any], severity: Any = "error", message: str = "m"
) -> Finding:
    return Finding(code, f"{message} {code}", remedy=Remedy("do it", change), severity=severity)


def record(
    *findings: Finding, target: str = "ort", leading: Finding | None = None, status: Any = "failed"
) -> RunRecord:
    verification = Verification(f"verify:{target}", None, status, "device", "", findings=findings)
    return build_record(
        targets=(
            TargetReport(
                *(target, "onnxruntime", "cpu", "float16", status, "", (verification,)),
                leading=leading,
            ),
        )
    )


def codes(proposal: Proposal) -> list[str]:
    return [offer.finding.code for offer in proposal.offers]


def kept(*patterns: str, **more: Any) -> dict[str, Any]:
    return {PRECISION: {"default": "float16", "keep_float32": list(patterns)} | more}


class TestOrder:
    def test_the_headline_s_finding_goes_first_and_families_by_cause(self) -> None:
        findings = [
            finding("N202", {"model.dtype": "float16"}),
            finding("C106", {"export.exporter": "torchscript"}),
            finding("E205", {"targets.ort.optimization": "basic"}),
            finding("N201", {"model.attn_implementation": "eager"}),
        ]
        proposal = propose(record(*findings, leading=findings[3]), CONTENT)
        assert codes(proposal) == ["N201", "C106", "E205", "N202"]

    def test_symptoms_count_where_nothing_else_offers_anything(self) -> None:
        symptom = finding("N101", {"export.opset": 17})
        assert codes(propose(record(symptom, finding("C108", {})), CONTENT)) == ["N101"]
        assert codes(propose(record(symptom, finding("N204", kept("x"), "warning")), CONTENT)) == [
            "N204"
        ]
        assert codes(propose(record(symptom, finding("N202", kept("x"))), CONTENT)) == ["N202"]

    def test_a_symptom_of_one_target_comes_after_a_cause_of_another(self) -> None:
        first = record(finding("N101", {"export.opset": 17})).targets[0]
        second = record(finding("E205", {"targets.own.export.opset": 16}), target="own").targets[0]
        assert codes(propose(build_record(targets=(first, second)), CONTENT)) == ["E205", "N101"]

    def test_of_two_values_for_one_key_the_first_finding_s_is_taken(self) -> None:
        proposal = propose(
            record(finding("N202", {"export.opset": 17}), finding("C106", {"export.opset": 16})),
            CONTENT,
        )
        assert codes(proposal) == ["C106"]
        assert proposal.change == {"export.opset": 16}

    def test_warnings_count_where_no_error_offers_anything(self) -> None:
        warning = finding("N204", kept("small"), "warning")
        assert codes(propose(record(finding("N101", {}), warning), CONTENT)) == ["N204"]
        assert codes(propose(record(finding("N202", kept("large")), warning), CONTENT)) == ["N202"]
        assert codes(propose(record(finding("N201", kept("note"), "note")), CONTENT)) == []

    @pytest.mark.parametrize("status", ["verified", "skipped"])
    def test_a_target_that_did_not_fail_offers_nothing(self, status: Any) -> None:
        assert (
            codes(propose(record(finding("N204", kept("x"), "warning"), status=status), CONTENT))
            == []
        )

    def test_several_targets_change_in_one_round(self) -> None:
        both = build_record(
            targets=(
                record(finding("N202", kept("x"))).targets[0],
                record(
                    finding("C106", {"targets.own.optimization": "basic"}), target="own"
                ).targets[0],
            )
        )
        proposal = propose(both, CONTENT)
        assert proposal.change == kept("x") | {"targets.own.optimization": "basic"}
        assert [offer.target for offer in proposal.offers] == ["own", "ort"]

    def test_one_finding_seen_by_two_targets_is_applied_once(self) -> None:
        shared = finding("C105", {"inputs.0.dtype": "int32"})
        targets = (record(shared).targets[0], record(shared, target="own").targets[0])
        assert codes(propose(build_record(targets=targets), CONTENT)) == ["C105"]


class TestMerging:
    def test_exceptions_of_one_precision_are_united(self) -> None:
        proposal = propose(
            record(finding("N202", kept("a", "b")), finding("N203", kept("b", "c"))), CONTENT
        )
        assert proposal.change == kept("a", "b", "c")
        assert codes(proposal) == ["N202", "N203"]

    def test_saturation_joins_them(self) -> None:
        saturated = {PRECISION: {"default": "float16", "saturate": True}}
        proposal = propose(record(finding("N202", kept("a")), finding("N205", saturated)), CONTENT)
        assert proposal.change == kept("a", saturate=True)

    def test_a_second_finding_that_adds_nothing_is_no_step(self) -> None:
        proposal = propose(record(finding("N202", kept("a")), finding("N203", kept("a"))), CONTENT)
        assert codes(proposal) == ["N202"]

    def test_auto_takes_in_any_list(self) -> None:
        auto = {"default": "float16", "keep_float32": "auto"}
        assert merge_values({"default": "float16", "keep_float32": ["a"]}, auto) == auto
        assert merge_values(auto, {"default": "float16", "keep_float32": ["a"]}) == auto

    def test_precisions_of_two_kinds_are_not_mixed(self) -> None:
        one, other = {"default": "float16"}, {"quantize": "dynamic-int8", "keep_float32": ["a"]}
        assert merge_values(one, other) == one

    @given(
        st.lists(st.sampled_from("abc")),
        st.lists(st.sampled_from("abc")),
        st.booleans(),
        st.booleans(),
    )
    def test_merging_loses_nothing(
        self, first: list[str], second: list[str], one: bool, other: bool
    ) -> None:
        values = [
            {"default": "float16", "keep_float32": kept, "saturate": saturate}
            for kept, saturate in ((first, one), (second, other))
        ]
        merged = merge_values(*values)
        assert set(merged["keep_float32"]) == {*first, *second}
        assert len(merged["keep_float32"]) == len(set(merged["keep_float32"]))
        assert merged["saturate"] == (one or other)

    def test_what_would_be_no_recipe_is_withheld(self) -> None:
        findings = [
            finding("N202", kept("a")),
            finding("E102", {"targets.ort.artifact": "optimized"}),
        ]
        proposal = propose(record(*findings), CONTENT)
        assert codes(proposal) == ["N202"]
        assert [each.path for each in proposal.withheld] == ["targets.ort.artifact"]
        assert "artifact: exported" in proposal.withheld[0].reason

    def test_two_inputs_that_would_bear_one_name_are_not_both_renamed(self) -> None:
        findings = [
            finding("C104", {f"inputs.{place}.name": "input_ids"}, message=str(place))
            for place in (0, 1)
        ]
        proposal = propose(record(*findings), CONTENT)
        assert proposal.change == {"inputs.0.name": "input_ids"}
        assert [each.path for each in proposal.withheld] == ["inputs.1.name"]


WITHHELD = {
    "verify.tolerance.max_abs": 1.0,
    "verify.tolerance": {"cosine": 0.1},
    "verify.skip": ["masked-row"],
    "verify.outputs": {},
    "verify.seed": 3,
    "verify.budget": 0.1,
    "targets.ort.tolerance": {"max_abs": 1.0},
    "targets.ort.outputs": {},
    "targets.own.versions": [],
    "targets.own.device": "cuda",
    "targets.own.tools": {"onnxruntime": "==1.20.*"},
    "targets.own": {"runtime": "onnxruntime"},
    "targets": {"ort": {"runtime": "onnxruntime"}},
    "axes.sequence.max": 4,
    "tools.onnxruntime": "==1.20.*",
    "model.omit": ["x"],
    "model": {"path": "other"},
    "original": None,
    "inputs.0.sample": {"constant": 1},
    "inputs.0.shape": ["batch"],
    "inputs.0": {"name": "ids"},
    "outputs.0.mask": "mask",
    "inputs": [{"name": "ids"}],
    "outputs": [],
    "name": "other",
    PRECISION: "float32",
}


class TestWhatARepairNeverDoes:
    @pytest.mark.parametrize("path", WITHHELD)
    def test_what_decides_is_not_changed(self, path: str) -> None:
        proposal = propose(record(finding("C106", {path: WITHHELD[path]})), CONTENT)
        assert proposal.offers == ()
        assert proposal.content == CONTENT
        (withheld,) = proposal.withheld
        assert (withheld.path, withheld.code) == (path, "C106")
        assert "left to you" in withheld.reason

    @pytest.mark.parametrize(
        "value", ["bfloat16", {"default": "bfloat16"}, {"quantize": "dynamic-int8"}]
    )
    def test_a_precision_is_not_given_up(self, value: Any) -> None:
        proposal = propose(record(finding("N202", {PRECISION: value})), CONTENT)
        assert (proposal.offers, proposal.content) == ((), CONTENT)
        (withheld,) = proposal.withheld
        assert (withheld.path, withheld.code) == (PRECISION, "N202")
        assert withheld.reason.startswith("left to you: it drops float16")

    def test_of_a_remedy_the_part_that_may_be_applied_is(self) -> None:
        proposal = propose(
            record(finding("N202", {"verify.skip": ["texts"], **kept("a")})), CONTENT
        )
        assert proposal.change == kept("a")
        assert [each.path for each in proposal.withheld] == ["verify.skip"]

    @given(
        st.dictionaries(
            st.sampled_from([*WITHHELD, PRECISION]), st.sampled_from(list(WITHHELD.values()))
        )
    )
    def test_whatever_is_on_offer(self, change: dict[str, Any]) -> None:
        content = propose(record(finding("C106", change)), CONTENT).content
        for key in ("verify", "axes", "tools", "model", "name"):
            assert content.get(key) == CONTENT.get(key)
        assert content["targets"].keys() == CONTENT["targets"].keys()
        assert [item["name"] for item in content["inputs"]] == [
            item["name"] for item in CONTENT["inputs"]
        ]
        for name, target in CONTENT["targets"].items():
            assert {**content["targets"][name], "precision": None} == {**target, "precision": None}


def test_a_change_that_changes_nothing_is_no_offer() -> None:
    order = [{"name": item["name"]} for item in CONTENT["inputs"]]
    change = {
        PRECISION: "float16",
        "inputs": order,
        "inputs.0.dtype": "int64",
        "inputs.9.dtype": "int32",
    }
    assert propose(record(finding("C103", change)), CONTENT).offers == ()


def test_the_recipe_s_export_means_a_target_s_own_where_it_has_one() -> None:
    proposal = propose(record(finding("C106", {"export.exporter": "torch"}), target="own"), CONTENT)
    assert proposal.change == {"targets.own.export.exporter": "torch"}
    assert proposal.content["targets"]["own"]["export"] == {"exporter": "torch"}
    assert propose(record(finding("C106", {"export.opset": 20})), CONTENT).content["export"] == {
        "opset": 20
    }


def test_a_finding_of_a_stage_before_counts_for_a_broken_target_too() -> None:
    broken = record(status="broken")
    target = dataclasses.replace(
        broken.targets[0], findings=(finding("C103", {"inputs.0.name": "x"}),)
    )
    assert codes(propose(dataclasses.replace(broken, targets=(target,)), CONTENT)) == ["C103"]


def test_the_content_that_is_given_stays_untouched() -> None:
    before = copy.deepcopy(CONTENT)
    propose(record(finding("N202", kept("a"))), CONTENT)
    assert before == CONTENT


class TestAlternatives:
    def test_a_second_change_of_the_same_key_waits(self) -> None:
        findings = [finding("N205", kept(saturate=True)), finding("N202", kept("x"))]
        other = finding("C106", {"export.exporter": "torchscript"})
        proposal = propose(record(*findings, other, leading=findings[0]), CONTENT)
        first, every, *single = narrowed(proposal, CONTENT)
        assert codes(first) == ["N205", "C106"]
        assert codes(every) == ["N205", "C106", "N202"]
        assert [codes(each) for each in single] == [["N205"], ["C106"], ["N202"]]

    def test_a_rejected_offer_leaves_its_place_to_what_comes_after(self) -> None:
        cause, symptom = finding("N202", kept("x")), finding("N101", {"export.opset": 17})
        first = propose(record(cause, symptom), CONTENT)
        assert codes(first) == ["N202"]
        rejected = {offer.key for offer in first.offers}
        assert codes(propose(record(cause, symptom), CONTENT, rejected)) == ["N101"]
