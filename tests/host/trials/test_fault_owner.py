"""Owners from experiments: what is right elsewhere is not wrong."""

import dataclasses

import pytest

from convkit.host.findings.catalog import is_unproven
from convkit.host.trials.experiment_findings import with_experiments
from convkit.host.trials.fault_owner import Experiment, owner_of, result, same_file_right
from convkit.host.trials.tried_remedies import _is_subject
from convkit.protocol.findings.finding import Finding, Place, Remedy

WRONG_GRAPH = Finding(
    "N402", "the graph is wrong", Place(case="typical"), {}, Remedy("Try a different exporter.")
)
ELSEWHERE = Experiment("other_release", "onnxruntime 1.31.1 (ort-cpu)", "right", 6, 1e-7)
OPSET = {"targets.old.export": {"opset": 20}}


def opset(outcome: str) -> Experiment:
    return Experiment("other_opset", "opset: 20", outcome, 6, 1e-7, OPSET)  # type: ignore[arg-type]


def test_a_file_that_one_release_computes_right_is_not_wrong() -> None:
    found = with_experiments(WRONG_GRAPH, [ELSEWHERE, opset("right")], "onnxruntime 1.21.1")
    assert found.code == "N411"
    assert found.evidence["owner"] == "kernel"
    assert not is_unproven(found)
    assert "onnxruntime 1.21.1" in found.message
    assert "onnxruntime 1.31.1 (ort-cpu): right in 6 cases" in found.message
    assert found.remedy is not None
    assert (found.remedy.change, found.remedy.proven) == (OPSET, True)
    assert "opset: 20: tried, right in 6 cases" in found.remedy.text
    assert "exporter" not in found.remedy.text


def test_what_does_not_help_is_no_remedy() -> None:
    found = with_experiments(WRONG_GRAPH, [ELSEWHERE, opset("wrong")], "onnxruntime 1.21.1")
    assert found.remedy is not None
    assert (found.remedy.change, found.remedy.proven) == ({}, False)
    assert "opset: 20: wrong as well" in found.remedy.text


def test_a_runtime_that_computes_the_graph_right_is_a_way_out() -> None:
    other = Experiment("other_runtime", "onnxruntime 1.31.1 (ort)", "right", 6, 0.0)
    found = with_experiments(WRONG_GRAPH, [other, opset("wrong")], "OpenVINO 2026.4.1")
    assert found.remedy is not None
    assert "onnxruntime 1.31.1 (ort) computes the same graph right" in found.remedy.text
    release = with_experiments(WRONG_GRAPH, [ELSEWHERE, opset("wrong")], "onnxruntime 1.21.1")
    assert release.remedy is not None
    assert "serve the model" not in release.remedy.text


def test_without_an_experiment_that_separates_them_nobody_is_blamed() -> None:
    found = with_experiments(WRONG_GRAPH, [opset("untried")], "onnxruntime 1.21.1")
    assert (found.code, found.message) == (WRONG_GRAPH.code, WRONG_GRAPH.message)
    assert found.evidence["owner"] is None
    assert found.remedy == WRONG_GRAPH.remedy


def test_a_missing_kernel_is_the_runtimes_whatever_is_tried() -> None:
    missing = Finding("T101", "no kernel for Conv", remedy=Remedy("Cast the operands."))
    found = with_experiments(missing, [opset("wrong")], "onnxruntime 1.31.1")
    assert found.evidence["owner"] == "kernel"
    assert found.remedy is not None
    assert "opset: 20: wrong as well" in found.remedy.text
    assert "which convkit has not tried" in found.remedy.text
    assert with_experiments(missing, [opset("right")], "it").remedy == Remedy(
        "Set opset: 20: tried, right in 6 cases, off by 1e-07 at most.", OPSET, proven=True
    )


def test_a_valid_file_that_is_refused_at_every_level_is_the_kernels() -> None:
    refused = Finding("E205", "the runtime refused the model")
    less = {"targets.ort.optimization": "basic"}
    wrong = Experiment("fewer_fusions", "optimization: basic", "wrong", 0, None, less)
    right = Experiment("fewer_fusions", "optimization: none", "right", 6, 0.0, less)
    valid = with_experiments(refused, [wrong], "it", is_valid=True)
    assert valid.evidence["owner"] == "kernel"
    assert with_experiments(refused, [wrong], "it").evidence["owner"] is None
    fused = with_experiments(refused, [wrong, right], "it", is_valid=True)
    assert fused.evidence["owner"] == "fusion"


def test_a_change_that_a_finding_offers_is_a_fix_once_it_was_right() -> None:
    change = {"targets.ov.source": "onnx"}
    offered = Finding("N405", "wrong", remedy=Remedy("Build from the graph.", change))
    right = Experiment("other_route", "source: onnx", "right", 9, 0.0, change)
    found = with_experiments(offered, [right], "OpenVINO")
    assert found.remedy is not None
    assert found.remedy.label == "fix"
    assert found.remedy.text == "Build from the graph: tried, right in 9 cases, off by 0 at most."


@pytest.mark.parametrize(
    ("kind", "outcome", "owner"),
    [
        ("other_runtime", "right", "kernel"),
        ("other_release", "right", "kernel"),
        ("other_route", "right", "converter"),
        ("fewer_fusions", "right", "fusion"),
        ("other_opset", "right", None),
        ("other_release", "wrong", None),
        ("other_release", "untried", None),
    ],
)
def test_each_experiment_shows_one_owner(kind: str, outcome: str, owner: str | None) -> None:
    assert owner_of([Experiment(kind, "it", outcome)]) == owner  # type: ignore[arg-type]


def test_only_what_left_the_file_alone_vouches_for_it() -> None:
    assert same_file_right([opset("right")]) is None
    assert same_file_right([opset("right"), ELSEWHERE]) is ELSEWHERE


def test_what_was_not_tried_says_why() -> None:
    assert result(Experiment("other_release", "it", "untried", why="no wheel")) == (
        "not tried, no wheel"
    )


COSTS = Finding(
    "Q102", "most of it comes from 3", remedy=Remedy("Keep 3 in float32.", {"keep": ["3"]})
)


def precision(kept: list[str], outcome: str) -> Experiment:
    change = {"targets.small.precision.keep_float32": kept}
    return Experiment("other_precision", f"keep_float32: {kept}", outcome, 9, 0.2, change)  # type: ignore[arg-type]


def test_a_precision_that_is_not_enough_is_neither_untried_nor_a_fix() -> None:
    assert COSTS.remedy is not None
    assert COSTS.remedy.label == "untried"
    found = with_experiments(COSTS, [precision(["3"], "wrong")], "onnxruntime 1.31.1")
    assert found.remedy is not None
    assert (found.remedy.label, found.remedy.change) == ("tried", COSTS.remedy.change)
    assert "not enough by itself" in found.remedy.text
    assert "wrong as well, off by 0.2 at most" in found.remedy.text


def test_the_precision_that_was_right_is_the_fix() -> None:
    tried = [precision(["3"], "wrong"), precision(["2", "3", "4"], "right")]
    found = with_experiments(COSTS, tried, "onnxruntime 1.31.1")
    assert found.remedy is not None
    assert (found.remedy.label, found.remedy.change) == ("fix", tried[1].change)


@pytest.mark.parametrize(
    ("remedy", "label"),
    [
        (Remedy("Write it otherwise."), "untried"),
        (Remedy("Set it.", {"a": 1}), "untried"),
        (Remedy("Set it.", {"a": 1}, proven=True), "fix"),
        (Remedy("See the message.", refers=True), "next"),
    ],
)
def test_only_what_was_tried_is_a_fix(remedy: Remedy, label: str) -> None:
    assert remedy.label == label


def test_a_change_of_the_recipe_is_better_than_another_runtime() -> None:
    served = Remedy("Serve this model with onnxruntime.", proven=True)
    wrong = Finding("N408", "Erf is off", Place(), {"owner": "kernel"}, served)
    fallback = dataclasses.replace(wrong, evidence=wrong.evidence | {"fallback": True})
    assert _is_subject(fallback, [], "ov")
    assert not _is_subject(wrong, [], "ov"), "what else is proven is not tried again"
    found = with_experiments(fallback, [opset("right")], "OpenVINO").remedy
    assert found is not None
    assert found.change == OPSET
    kept = with_experiments(fallback, [opset("wrong")], "OpenVINO").remedy
    assert kept is not None
    assert kept.proven
    assert kept.text.startswith(f"{served.text} Nothing else that was tried repairs it")
    assert with_experiments(fallback, [opset("untried")], "OpenVINO").remedy == served
