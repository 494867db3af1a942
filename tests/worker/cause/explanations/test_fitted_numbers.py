"""Numbers that are fitted to the original's values: what rounding leaves of zero is zero."""

import types

import numpy as np
import pytest

from convkit.worker.cause.explanations.wrong_numbers import fit

SCALE = np.linspace(0.1, 1.0, 32).astype(np.float32)


def fitted(wanted: float, start: float, *, power: int = 1) -> float | None:
    """Fit a factor of values that are off by rounding, by less for a smaller factor: kernels with
    and without FMA round differently, and either may hit zero at once.
    """

    def computed(number: float) -> np.ndarray:
        noise = 1 + 1e-7 * np.sin(1e3 * SCALE)
        return (SCALE.astype(np.float64) * number**power * noise).astype(np.float32)

    region = types.SimpleNamespace(
        expected=(SCALE * np.float32(wanted)).astype(np.float32), computed=computed
    )
    return fit(region, lambda number: number, start)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("start", [0.5, -3.0, 1e-3])
def test_zero_is_found_and_not_what_rounding_leaves_of_it(start: float) -> None:
    assert fitted(0.0, start) == 0.0


@pytest.mark.parametrize("wanted", [1e-12, 2e-9, 0.25, -4.0])
def test_small_numbers_that_fit_better_than_zero_are_kept(wanted: float) -> None:
    assert fitted(wanted, 0.5) == pytest.approx(wanted, rel=1e-4)
