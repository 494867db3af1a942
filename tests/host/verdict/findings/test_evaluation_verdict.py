import dataclasses
import math

import numpy as np
import pytest
from small_recipe import recipe

from convkit.host.recipe.keys.tolerances import decided_by, limits_for
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.doubtful_settings import advice, sample_advice
from convkit.host.verdict.findings.task_score import evaluation_findings, evaluation_text
from convkit.protocol.messages import EvaluationMetrics
from convkit.worker.metrics.tensor_metrics import compare

ASKED = {
    "data": "rows.npz", "inputs": {"ids": "ids"}, "labels": "l", "metric": "accuracy",
    "max_drop": 0.02,
}  # fmt: skip
SCORED = EvaluationMetrics("accuracy", 100, 0.9, 0.89, 0.01, 0.0, 0.02)
TASK = recipe(evaluate=ASKED, verify={})


def codes(made, **changes) -> list[str]:
    scored = dataclasses.replace(SCORED, **changes)
    return [each.code for each in evaluation_findings(made, made.targets["ort"], scored, ())]


@pytest.mark.parametrize(
    ("low", "high", "code"),
    [
        (0.0, 0.02, []),
        (0.0, 0.021, ["N702"]),
        (0.021, 0.05, ["N701"]),
        (math.nan, math.nan, ["N702"]),
    ],
)
def test_the_interval_decides(low, high, code):
    assert codes(TASK, low=low, high=high) == code


@pytest.mark.parametrize(
    ("disagreed", "error", "code"), [(0, 1e-5, []), (0, 1e-2, ["N702"]), (1, 1e-5, ["N702"])]
)
def test_outputs_tell_what_a_few_rows_decided_alike_cannot(disagreed, error, code):
    right = np.linspace(0, 1, 8, dtype=np.float32)
    output = OutputVerdict("y", True, (), {}, compare("y", right, right + np.float32(error)))
    case = CaseVerdict("typical", "", {}, True, 0.1, (output,))
    scored = dataclasses.replace(SCORED, rows=4, low=-0.6, high=0.6, disagreed=disagreed)
    found = evaluation_findings(TASK, TASK.targets["ort"], scored, (case,))
    assert [each.code for each in found] == code


def test_a_score_that_is_not_a_number_never_passes():
    nan = math.nan
    assert codes(TASK, candidate=nan, drop=nan, low=nan, high=nan) == ["N701"]
    assert codes(TASK, original=nan) == ["N703"]
    assert codes(TASK, error="the runtime failed") == ["N703"]
    missing = evaluation_findings(TASK, TASK.targets["ort"], None, ())
    assert [each.code for each in missing] == ["N703"]


def test_a_perplexity_is_judged_by_the_share_it_rises_by():
    asked = ASKED | {"metric": "perplexity", "max_rise": 0.05, "max_drop": None, "labels": None}
    made = recipe(evaluate=asked, verify={})
    scored = EvaluationMetrics("perplexity", 40, 20.0, 22.0, 0.1, 0.08, 0.12, rises=True)
    (finding,) = evaluation_findings(made, made.targets["ort"], scored, ())
    assert finding.code == "N701"
    assert "is higher by more than 5 %" in finding.message
    assert "perplexity 22, original 20 (rises by 10 %, 95 % between 8 % and 12 %" in finding.message
    assert finding.evidence["max_rise"] == 0.05
    allowed = {"ort": {"runtime": "onnxruntime", "max_rise": 0.12}}
    loose = recipe(evaluate=asked, verify={}, targets=allowed)
    assert evaluation_findings(loose, loose.targets["ort"], scored, ()) == []


def test_word_errors_are_judged_by_their_difference():
    asked = ASKED | {"metric": "wer", "max_rise": 0.01, "max_drop": None}
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 3],
                "postprocess": {"text": {"symbols": ["-", "a", "b"]}}}]  # fmt: skip
    made = recipe(evaluate=asked, verify={}, outputs=outputs)
    scored = EvaluationMetrics("wer", 40, 0.0, 0.1, 0.1, 0.08, 0.12, rises=True, relative=False)
    (finding,) = evaluation_findings(made, made.targets["ort"], scored, ())
    assert finding.code == "N701"
    assert "is higher by more than 0.01: wer 0.1, original 0 (rise 0.1, 95 %" in finding.message


def test_without_evaluate_nothing_is_said():
    plain = recipe()
    assert evaluation_findings(plain, plain.targets["ort"], None, ()) == []


@pytest.mark.parametrize(
    ("changes", "decided"),
    [
        ({}, "tolerance"),
        ({"evaluate": ASKED}, "tolerance and task metric"),
        ({"evaluate": ASKED, "verify": {}}, "task metric"),
        (
            {
                "evaluate": ASKED,
                "verify": {},
                "targets": {"ort": {"runtime": "onnxruntime", "tolerance": {"cosine": 0.9}}},
            },
            "tolerance and task metric",
        ),
    ],
)
def test_a_tolerance_counts_beside_a_task_only_if_it_was_written(changes, decided):
    made = recipe(**changes)
    target = made.targets["ort"]
    assert decided_by(made, target) == decided
    assert bool(limits_for(made, target, "y", None)) == ("tolerance" in decided)


def test_a_tolerance_that_does_not_decide_needs_no_advice():
    int8 = {"ort": {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}}
    made = recipe(evaluate=ASKED, verify={}, targets=int8)
    assert limits_for(made, made.targets["ort"], "y", None) == {}
    assert advice(made, made.targets["ort"]) == sample_advice(made)
    plain = recipe(verify={}, targets=int8)
    codes = {finding.code for finding in advice(plain, plain.targets["ort"])}
    assert "N507" in codes


def test_a_score_that_passes_is_shown_with_what_it_was_allowed():
    drop = EvaluationMetrics("accuracy", 400, 0.93, 0.91, 0.02, 0.01, 0.03)
    text = "accuracy 0.91, original 0.93 (drop 0.02{}, 95 % between 0.01 and 0.03, 400 rows)"
    assert evaluation_text(drop) == text.format("")
    assert evaluation_text(drop, 0.05) == text.format(" of 0.05 allowed")
    rise = EvaluationMetrics("perplexity", 40, 20.0, 20.4, 0.02, 0.01, 0.03, rises=True)
    assert "(rises by 2 % of 5 % allowed, 95 % between 1 % and 3 %" in evaluation_text(rise, 0.05)
