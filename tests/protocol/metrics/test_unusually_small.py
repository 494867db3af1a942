"""Relative errors where values are few or only rounding noise, in parts of what is usual."""

import math

import pytest

from convkit.protocol.metrics.unusually_small import for_small, usual_magnitudes


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
        ({"nrmse": 0.25}, 999, 2.0**-25, 2.0, {"nrmse": 2.0**24}),  # what rounding leaves of zero
        ({"nrmse": 0.25}, 999, 0.0, 2.0, {"nrmse": 0.25}),
        ({"nrmse": 0.25}, 0, 2.0**-25, 2.0, {"nrmse": 0.25}),
    ],
)
def test_what_says_little_of_the_usual_size_is_judged_by_it(
    limits: dict[str, float], elements: int, rms: float, usual: float, expected: dict[str, float]
) -> None:
    assert for_small(limits, elements, rms, usual) == expected
