"""Which differing results of a built model are ties, and which fail its target."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from records import tensor_metrics

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.verdict.findings.app_results import results_findings
from convkit.protocol.messages import CaseMetrics, ResultMetrics

CASE = CaseMetrics("typical", 0.1, (tensor_metrics(0.01, output="scores"),))


def recipe(tolerance: dict[str, float], **postprocess: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "schema": 1,
            "name": "small",
            "model": {"path": "model"},
            "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 3]}],
            "outputs": [
                {"name": "scores", "dtype": "float32", "shape": [4, 3]}
                | {"postprocess": {"labels": {}} | postprocess}
            ],
            "targets": {"cpu": {"runtime": "onnxruntime", "tolerance": tolerance}},
        }
    )


def codes(made: Recipe, margin: float, differing: int = 1) -> list[str]:
    found = ResultMetrics("typical", "scores", "scores", 8, differing, margin, "row 0: 1, 2")
    measured = SimpleNamespace(results=(found,), cases=(CASE,))
    return [
        each.code
        for each in results_findings(made, made.targets["cpu"], measured, None)  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("margin", "expected"),
    [(0.15, []), (0.2, []), (0.21, ["C577"]), (math.nan, ["C577"]), (math.inf, ["C577"])],
)
def test_a_margin_of_twice_the_tolerance_is_a_tie(margin: float, expected: list[str]) -> None:
    assert codes(recipe({"max_abs": 0.1}), margin) == expected


def test_without_an_absolute_limit_a_tie_is_within_a_hundredth_of_the_scores() -> None:
    largest = CASE.outputs[0].reference_max
    made = recipe({"cosine": 0.99})
    assert codes(made, 0.009 * largest) == []
    assert codes(made, 0.011 * largest) == ["C577"]


@pytest.mark.parametrize(("differing", "expected"), [(1, []), (2, ["C577"])])
def test_agreement_says_how_many_rows_may_differ(differing: int, expected: list[str]) -> None:
    made = recipe({"max_abs": 0.1}, agreement=0.85)
    assert codes(made, math.inf, differing) == expected


def test_equal_results_have_no_findings() -> None:
    assert codes(recipe({"max_abs": 0.1}), 0.0, 0) == []
