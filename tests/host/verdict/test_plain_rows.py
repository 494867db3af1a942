"""Rows that are equal throughout, whose normalization multiplies what rounding leaves of them."""

import dataclasses

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
