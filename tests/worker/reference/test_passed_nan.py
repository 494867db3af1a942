"""NaN that a model passes on from its inputs agrees; NaN that it makes of numbers does not."""

import numpy as np
import pytest
import torch

from convkit.protocol.metrics.limits import problems
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.reference.passed_nan import passes_nan

X = np.array([[1, np.nan, 3], [4, 5, 6]], np.float32)
NUMBERS = np.nan_to_num(X, nan=1.0)


def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"y": np.minimum(feeds["x"], 4)}


def roots(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):
        return {"y": np.sqrt(feeds["x"] - 2)}


def test_nan_is_passed_on_if_numbers_in_its_place_give_none() -> None:
    assert passes_nan({"x": X}, run({"x": X}), run)
    assert not passes_nan({"x": X}, roots({"x": X}), roots), "1 - 2 has no root"
    assert not passes_nan({"x": NUMBERS}, roots({"x": NUMBERS}), roots)


def written(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return roots, and NaN where the model says that there is none."""
    x = torch.tensor(feeds["x"])
    return {"y": x.clamp_min(0).sqrt().masked_fill(x < 2, float("nan")).numpy()}


def test_nan_that_the_model_writes_is_no_fault_of_its_numbers() -> None:
    assert passes_nan({"x": NUMBERS}, written({"x": NUMBERS}), written)
    assert passes_nan({"x": X}, written({"x": X}), written), "and that of its inputs"

    def both(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return written(feeds) | {"z": torch.tensor(feeds["x"] - 2).sqrt().numpy()}

    assert not passes_nan({"x": NUMBERS}, both({"x": NUMBERS}), both)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (X, ""),
        (NUMBERS, "1 numbers where the original passes NaN on"),
        (np.full_like(X, np.nan), "5 NaN in the converted model where the original has none"),
        (np.where(np.isnan(X), X, X + 1), "max_abs 1 > 0.1"),
    ],
)
def test_nan_on_both_sides_agrees_only_where_it_is_passed_on(
    found: np.ndarray, message: str
) -> None:
    agreed = problems(compare("y", X, found, nan_agrees=True), {"max_abs": 0.1})
    assert message in "; ".join(each.message for each in agreed)
    assert bool(agreed) == bool(message)
    assert problems(compare("y", X, found), {"max_abs": 0.1}), (
        "NaN that is made agrees with nothing"
    )
