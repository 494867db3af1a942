"""Relative errors of few values, in parts of what is usual."""

import math

import pytest

from convkit.protocol.metrics.few_values import for_few, usual_magnitudes


def test_the_usual_magnitude_is_the_median_of_usual_cases() -> None:
    found = [("smallest", "y", 0.1), ("typical", "y", 2.0), ("largest", "y", 3.0)]
    found += [("extreme", "y", 1e6), ("sweep:batch=3", "y", 1e6), ("batch:3", "y", math.nan)]
    assert usual_magnitudes(found) == {"y": 2.0}


@pytest.mark.parametrize(
    ("limits", "elements", "rms", "usual", "expected"),
    [
        ({"nrmse": 0.2}, 1, 0.5, 2.0, {"nrmse": 0.8}),
        ({"nrmse": 0.2}, 16, 0.5, 2.0, {"nrmse": 0.2}),
        ({"nrmse": 0.2}, 1, 3.0, 2.0, {"nrmse": 0.2}),
        ({"nrmse": 0.2}, 1, 0.0, 2.0, {"nrmse": 0.2}),
        ({"nrmse": 0.2}, 1, math.nan, 2.0, {"nrmse": 0.2}),
        ({"max_abs": 0.1}, 1, 0.5, 2.0, {"max_abs": 0.1}),
    ],
)
def test_only_few_and_small_values_are_judged_so(
    limits: dict[str, float], elements: int, rms: float, usual: float, expected: dict[str, float]
) -> None:
    assert for_few(limits, elements, rms, usual) == expected
