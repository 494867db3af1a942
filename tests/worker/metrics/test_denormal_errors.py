"""Errors below the smallest normal float32 are none, whichever processor's kernels flush them."""

import dataclasses
import math

import numpy as np
import pytest

from convkit.host.audit.checks.measured_figures import impossible_figures
from convkit.protocol.metrics.limits import problems
from convkit.worker.metrics.tensor_metrics import compare, largest_difference

TINY = np.float32(1e-39)
STRICT = {"max_abs": 0.0, "max_rel": 0.0, "cosine": 1.0, "nrmse": 0.0, "agreement": 1.0}


def array(*values: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (array(TINY, TINY), array(0, 0)),
        (array(0, 0), array(TINY, -TINY)),
        (array(TINY, 1), array(0, 1)),
        (array(1, TINY, math.inf), array(1, 0, math.inf)),
    ],
)
def test_denormals_that_one_side_flushed_are_equal(
    reference: np.ndarray, candidate: np.ndarray
) -> None:
    metrics = compare("y", reference, candidate)
    assert (metrics.max_abs, metrics.max_rel, metrics.agreement) == (0.0, 0.0, 1.0)
    assert problems(metrics, STRICT) == ()
    assert largest_difference({"y": reference}, {"y": candidate}) == 0.0
    assert list(impossible_figures(metrics)) == []


def test_the_smallest_normal_number_is_a_difference() -> None:
    smallest = np.finfo(np.float32).tiny
    metrics = compare("y", array(smallest, 1), array(0, 1))
    assert metrics.max_abs == smallest
    assert problems(metrics, STRICT)
    assert largest_difference({"y": array(smallest)}, {"y": array(0)}) == smallest


def test_nan_fails_beside_denormals() -> None:
    metrics = compare("y", array(TINY, 1), array(0, math.nan))
    assert problems(metrics, STRICT)
    assert math.isnan(largest_difference({"y": array(TINY)}, {"y": array(math.nan)}))
    everything = compare("y", array(TINY), array(math.nan))
    assert not everything.max_abs <= 1.0


def test_float64_resolves_what_float32_cannot() -> None:
    metrics = compare("y", array(1e-39, dtype=np.float64), array(0, dtype=np.float64))
    assert metrics.max_abs == 1e-39
    assert problems(metrics, STRICT)


def test_a_forged_figure_still_shows() -> None:
    honest = compare("y", array(0.5, 1), array(0.75, 1))
    assert list(impossible_figures(honest)) == []
    assert list(impossible_figures(dataclasses.replace(honest, worst_candidate=0.5)))
