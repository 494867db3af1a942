"""Rounding noise around zero is not judged by its direction."""

import dataclasses
import math

import pytest
from records import tensor_metrics

from convkit.protocol.messages import CaseMetrics
from convkit.protocol.metrics.near_zero_outputs import largest_values, meaningful

LIMITS = {"max_abs": 1e-3, "cosine": 0.999, "agreement": 0.5}
NOISE = dataclasses.replace(
    tensor_metrics(1.2e-7, cosine=0.8), output="y", reference_rms=1e-7, reference_max=2e-7
)
USUAL = dataclasses.replace(NOISE, reference_rms=0.5, reference_max=1.0)


def largest(*named):
    return largest_values([CaseMetrics(name, 0.1, (metrics,)) for name, metrics in named])


def test_noise_beside_large_values_has_no_direction():
    found = largest(("smallest", NOISE), ("typical", USUAL))
    assert found == {"y": 1.0}
    assert meaningful(LIMITS, NOISE, found) == {"max_abs": 1e-3, "agreement": 0.5}
    assert meaningful({"cosine": 0.999}, NOISE, found) == {"cosine": 0.999}  # nothing else is left


@pytest.mark.parametrize(
    "metrics",
    [
        USUAL,
        dataclasses.replace(NOISE, max_abs=1e-5),  # the built model returns more than noise
        dataclasses.replace(NOISE, reference_rms=1e-5),
        dataclasses.replace(NOISE, max_abs=math.nan),
        dataclasses.replace(NOISE, reference_rms=math.nan),  # an older record
    ],
)
def test_what_is_more_than_noise_is_judged_by_all_limits(metrics):
    assert meaningful(LIMITS, metrics, {"y": 1.0}) == LIMITS


def test_an_output_that_is_small_in_every_case_is_judged_by_all_limits():
    assert meaningful(LIMITS, NOISE, largest(("smallest", NOISE), ("typical", NOISE))) == LIMITS


def test_an_output_without_a_scale_is_judged_by_all_limits():
    assert meaningful(LIMITS, NOISE, {"another": 1.0}) == LIMITS


@pytest.mark.parametrize("name", ["extreme", "values", "values:2"])
def test_unusual_values_do_not_set_the_scale(name):
    assert largest((name, USUAL)) == {}
    assert meaningful(LIMITS, NOISE, largest((name, USUAL), ("typical", NOISE))) == LIMITS
