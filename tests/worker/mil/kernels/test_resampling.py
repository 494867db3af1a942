"""Sampling at coordinates, against numbers worked out by hand and against torch's conversion."""

import numpy as np
import pytest
import torch
from mil_programs import mb, small_program

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program_errors import EvaluationError

# One row of four pixels.
ROW = np.array([1.0, 2.0, 4.0, 8.0], np.float32).reshape(1, 1, 1, 4)


def sampled(x: float, **changes: object) -> float:
    given = {
        "sampling_mode": "bilinear",
        "padding_mode": "constant",
        "padding_value": np.float32(0),
        "coordinates_mode": "normalized_minus_one_to_one",
        "align_corners": True,
    } | changes
    places = np.array([x, 0.0], np.float32).reshape(1, 1, 1, 2)

    def body(x):
        return mb.resample(x=x, coordinates=places, name="y", **given)

    program = small_program(body, {"x": (ROW.shape, "fp32")})
    return float(Evaluator(program).run({"x": ROW}).outputs["y"].item())


@pytest.mark.parametrize(
    ("x", "changes", "expected"),
    [
        (-1.0, {}, 1.0),  # the first pixel's center
        (0.0, {}, 3.0),  # between the second and the third
        (0.5, {"sampling_mode": "nearest"}, 4.0),
        (0.75, {"align_corners": False}, 8.0),  # the last pixel's center
        (3.0, {"padding_mode": "border"}, 8.0),
        (3.0, {"padding_value": np.float32(5)}, 5.0),
        (5 / 3, {"padding_mode": "reflection"}, 4.0),  # one pixel beyond the last
        (1.25, {"padding_mode": "symmetric", "align_corners": False}, 8.0),
        (0.5, {"coordinates_mode": "normalized_zero_to_one"}, 3.0),
    ],
)
def test_a_row_is_sampled(x: float, changes: dict, expected: float) -> None:
    assert sampled(x, **changes) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "changes", [{"padding_mode": "symmetric"}, {"coordinates_mode": "unnormalized"}]
)
def test_what_is_undefined_is_refused(changes: dict) -> None:
    with pytest.raises(EvaluationError, match="undefined"):
        sampled(0.0, **changes)


def test_torch_means_the_same() -> None:
    places = torch.tensor([0.4, 0.0]).reshape(1, 1, 1, 2)
    own = torch.nn.functional.grid_sample(torch.from_numpy(ROW), places, align_corners=True)
    assert sampled(0.4) == pytest.approx(own.item(), abs=1e-5)
