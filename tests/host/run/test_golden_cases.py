"""Which limits a self-check gets from a verdict."""

import math
from typing import Any

import pytest

from convkit.host.record.run_record import OutputVerdict
from convkit.host.run.golden_cases import golden_limits
from convkit.protocol.messages import TensorMetrics


def verdict(limits: dict[str, float], **metrics: Any) -> OutputVerdict:
    figures = {"max_abs": 0.0, "max_rel": 0.0, "mean_abs": 0.0, "rms": 0.0, "cosine": 1.0}
    counts = dict.fromkeys(("nan_reference", "nan_candidate", "inf_reference"), 0)
    counts |= dict.fromkeys(("inf_candidate", "inf_mismatched"), 0)
    worst = {"worst_index": (0,), "worst_reference": 0.0, "worst_candidate": 0.0}
    found = TensorMetrics("y", 3, **figures, **worst, **counts)  # type: ignore[arg-type]
    for name, value in metrics.items():
        object.__setattr__(found, name, value)
    return OutputVerdict("y", True, (), limits, found)


@pytest.mark.parametrize(
    ("limits", "metrics", "expected"),
    [
        ({"cosine": 0.9}, {}, {"cosine": 0.9}),
        ({"max_abs": 1e-4, "ulps": 10.0}, {"differing_max": 1.0}, {"max_abs": 1e-4}),
        ({"max_abs": 1e-4, "ulps": 10.0}, {"differing_max": 1024.0}, {"max_abs": 10 * 2.0**-13}),
        (
            {"max_abs": 1e-4, "ulps": 10.0},
            {"differing_max": 0.0, "reference_rms": 1024.0},
            {"max_abs": 10 * 2.0**-13},
        ),
        ({"atol": 1e-3, "rtol": 1e-2}, {}, {"rtol": 1e-2, "atol": 1e-3}),
        ({"rtol": 1e-2}, {}, {"rtol": 1e-2, "atol": 0.0}),
        ({}, {"nrmse": 0.02}, {"nrmse": 0.04}),
        ({}, {"nrmse": 1e-7}, {"nrmse": 1e-3}),
        ({}, {"nrmse": math.nan}, {"nrmse": 1e-3}),
    ],
)
def test_limits(
    limits: dict[str, float], metrics: dict[str, float], expected: dict[str, float]
) -> None:
    found = golden_limits(verdict(limits, **metrics))
    assert list(found.items()) == list(expected.items())
