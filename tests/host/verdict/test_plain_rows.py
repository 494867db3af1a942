"""Rows that are equal throughout, whose normalization multiplies what rounding leaves of them."""

import dataclasses
import math

import pytest
from records import tensor_metrics
from small_recipe import recipe

from convkit.host.verdict.float32_resolution import ResolutionLimits
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limits import problems


def judged(case: str, nrmse: float, *, proven: bool) -> bool:
    metrics: TensorMetrics = dataclasses.replace(
        tensor_metrics(0.1), output="y", nrmse=nrmse, max_abs=0.1
    )
    found = recipe(targets={"t": {"runtime": "onnxruntime"}})
    resolved = {(case, "y"): 1.0} if proven else {}
    limits = ResolutionLimits(found, found.targets["t"], None, {}, resolved)
    return not problems(metrics, limits.of(metrics, case))


@pytest.mark.parametrize(
    ("case", "nrmse", "proven", "passes"),
    [
        ("plain-rows", 0.009, True, True),
        ("plain-rows:huge", 0.009, True, True),
        ("plain-rows", 0.02, True, False),
        ("plain-rows", 0.009, False, False),
        ("typical", 0.009, True, False),
    ],
)
def test_a_part_of_their_magnitude_is_allowed_once_float64_agrees(
    case: str, nrmse: float, proven: bool, passes: bool
) -> None:
    assert judged(case, nrmse, proven=proven) is passes


@pytest.mark.parametrize(
    ("case", "magnitude", "nrmse", "passes"),
    [
        ("plain-rows:offset", 2e3, 0.009, True),
        ("plain-rows:offset", 2e3, 0.02, False),
        ("plain-rows:offset", 2e3, math.nan, False),
        ("plain-rows:offset", math.inf, 0.009, False),
        ("plain-rows:offset", 500.0, 0.009, False),
        ("typical", 2e3, 0.009, False),
    ],
)
def test_limits_on_usual_values_do_not_judge_what_is_a_thousand_times_as_large(
    case: str, magnitude: float, nrmse: float, passes: bool
) -> None:
    metrics = dataclasses.replace(
        tensor_metrics(0.1), output="y", nrmse=nrmse, max_abs=9.0, reference_max=magnitude
    )
    found = recipe(targets={"t": {"runtime": "onnxruntime"}})
    limits = ResolutionLimits(found, found.targets["t"], None, {"y": 1.0}, {})
    assert (not problems(metrics, limits.of(metrics, case))) is passes
