"""Limits that follow the magnitude of large outputs."""

import dataclasses
import math

import numpy as np
import pytest
from small_recipe import recipe

from convkit.host.audit.checks.measured_figures import impossible_figures
from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.recipe.keys.tolerances import limits_for, limits_of
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import judged_error
from convkit.protocol.metrics.limits import breaches, is_within, overshoot
from convkit.worker.metrics import errors_by_scale
from convkit.worker.metrics.tensor_metrics import compare

DEFAULT = limits_of(recipe(verify={}).verify.tolerance)
# Beside a limit on the error, so that it alone decides.
LIMITS = {name: limit for name, limit in DEFAULT.items() if name != "cosine"}


def differing(largest: float, error: float) -> TensorMetrics:
    """Compare values from -largest to largest, all with the same error."""
    reference = np.linspace(-largest, largest, 64, dtype=np.float32)
    return compare("y", reference, (reference.astype(np.float64) + error).astype(np.float32))


def test_the_rounding_of_large_values_passes_by_default() -> None:
    three_units = 3 * 2.0**-7
    metrics = differing(9e4, three_units)
    assert np.spacing(np.float32(9e4)) == 2.0**-7
    assert is_within(metrics, DEFAULT)
    assert overshoot(metrics, LIMITS) == pytest.approx(0.3, rel=0.1)
    # A limit that somebody wrote is not widened.
    [breach] = breaches(metrics, {"max_abs": 1e-4, "cosine": 0.99999})
    assert (breach.limit, breach.allowed) == ("max_abs", 1e-4)


def test_a_larger_error_of_large_values_fails_by_default() -> None:
    [breach] = breaches(differing(9e4, 0.1), DEFAULT)  # a relative error of 1.1e-6
    assert (breach.limit, breach.allowed) == ("max_abs", 10 * 2.0**-7)
    assert not is_within(differing(9e4, math.nan), DEFAULT)


@pytest.mark.parametrize("largest", [1e-3, 1.0, 127.0])
def test_values_of_usual_size_are_judged_as_written(largest: float) -> None:
    [breach] = breaches(differing(largest, 1.2e-4), LIMITS)
    assert breach.allowed == 1e-4


def test_an_equal_mask_does_not_hide_the_error_of_other_values() -> None:
    reference = np.array([1.0, 2.0, -1e9, -1e9], np.float32)
    metrics = compare("y", reference, reference + np.array([0.1, 0, 0, 0], np.float32))
    assert (metrics.reference_max, metrics.differing_max) == (1e9, 1.0)
    assert [breach.limit for breach in breaches(metrics, DEFAULT)] == ["max_abs"]


def test_units_alone_are_the_limit() -> None:
    assert is_within(differing(1.0, 0.0), {"ulps": 0.0})
    assert is_within(differing(9e4, 2 * 2.0**-7), {"ulps": 2.5})
    [breach] = breaches(differing(9e4, 4 * 2.0**-7), {"ulps": 2.5})
    assert (breach.limit, breach.allowed) == ("max_abs", 2.5 * 2.0**-7)


def test_a_record_that_lacks_the_magnitude_is_judged_as_written() -> None:
    older = dataclasses.replace(differing(9e4, 3 * 2.0**-7), differing_max=math.nan)
    assert [breach.allowed for breach in breaches(older, DEFAULT)] == [1e-4]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", {"max_abs": 1e-4, "ulps": 10.0, "cosine": 0.99999}),
        ("float64", {"max_abs": 1e-4, "cosine": 0.99999}),
        ("int64", {"agreement": 1.0}),
    ],
)
def test_units_of_float32_apply_to_float32_outputs(dtype: str, expected: dict[str, float]) -> None:
    output = {"name": "y", "dtype": dtype, "shape": ["batch"]}
    chosen = recipe(outputs=[output], verify={}, targets={"t": {"runtime": "onnxruntime"}})
    assert limits_for(chosen, chosen.targets["t"], "y", None) == expected
    written = Tolerance.model_validate({"max_abs": 1e-4})
    assert limits_for(chosen, chosen.targets["t"], "y", written) in (
        {"max_abs": 1e-4},
        {"agreement": 1.0},
    )


def test_a_record_cannot_widen_the_limit_by_a_magnitude_that_the_output_lacks() -> None:
    honest = differing(9e4, 3 * 2.0**-7)
    assert list(impossible_figures(honest)) == []
    forged = dataclasses.replace(honest, differing_max=1e9)
    assert list(impossible_figures(forged)) == ["differing_max is 1e+09, reference_max 90000"]


def beside_a_large_column(seed: int) -> np.ndarray:
    """Return rows of a value near 1e7 and eight near 1."""
    rng = np.random.default_rng(seed)
    small = rng.random((4, 8), np.float32)
    return np.concatenate([1e7 * (1 + rng.random((4, 1), np.float32)), small], 1, dtype=np.float32)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_large_column_does_not_widen_the_limit_of_others(transposed: bool) -> None:
    right = beside_a_large_column(1)
    wrong = right.copy()
    wrong[:, 0] += 1.0  # the unit in the last place there
    place = (2, 3)
    if transposed:
        right, wrong, place = right.T.copy(), wrong.T.copy(), (3, 2)
    assert is_within(compare("y", right, wrong), DEFAULT)
    wrong[place] += 0.2
    metrics = compare("y", right, wrong)
    [breach] = breaches(metrics, LIMITS)
    assert breach.found == pytest.approx(0.2)
    assert breach.allowed == 1e-4
    assert judged_error(metrics, LIMITS).index == place
    assert metrics.max_abs >= 1.0  # which all elements together are allowed
    assert is_within(dataclasses.replace(metrics, by_scale=()), LIMITS)


def test_errors_by_scale_are_those_of_blocks_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    right = (rng.standard_normal((24, 5, 6)) * 10.0 ** rng.integers(0, 6, (1, 5, 1))).astype("f4")
    wrong = right + rng.standard_normal(right.shape).astype("f4")
    padding = np.zeros(24, bool)
    padding[7] = True
    whole = compare("y", right, wrong, padding)
    assert len(whole.by_scale) > 1
    assert whole.by_scale[-1].error == whole.max_abs
    monkeypatch.setattr(errors_by_scale, "_BLOCK", 64)
    assert compare("y", right, wrong, padding) == whole


def test_cancellation_in_an_element_is_judged_by_its_row_and_column() -> None:
    right = np.random.default_rng(5).standard_normal((8, 8)).astype("f4") * 1e5
    right[3, 4] = 0.01
    wrong = np.nextafter(right, np.float32(np.inf))
    wrong[3, 4] += np.float32(0.02)  # three units at 1e5
    assert is_within(compare("y", right, wrong), DEFAULT)


def test_a_record_cannot_claim_a_scale_that_the_output_lacks() -> None:
    right = beside_a_large_column(2)
    honest = compare("y", right, right + np.float32(2.0))
    assert list(impossible_figures(honest)) == []
    last = honest.by_scale[-1]
    for changed in (dataclasses.replace(last, scale=1e9), dataclasses.replace(last, error=0.5)):
        forged = dataclasses.replace(honest, by_scale=(*honest.by_scale[:-1], changed))
        assert len(list(impossible_figures(forged))) == 1
