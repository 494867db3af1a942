"""Calibration sees a case in parts of few rows."""

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec
from convkit.worker.cases.calibration_cases import in_parts


def contract(least: int, *shapes: tuple[Dimension, ...]) -> Contract:
    inputs = tuple(TensorSpec(f"x{i}", "float32", shape) for i, shape in enumerate(shapes))
    return Contract(inputs, (), (Axis("batch", least, max(least, 2), 8), Axis("n", 1, 3, 4)))


@pytest.mark.parametrize(
    ("least", "rows", "counts"),
    [(1, 3, [1, 1, 1]), (2, 5, [2, 3]), (2, 4, [2, 2]), (2, 2, [2]), (1, 1, [1]), (1, 0, [0])],
)
def test_each_row_comes_once_in_the_fewest_rows(least: int, rows: int, counts: list[int]) -> None:
    feeds = {"x0": np.arange(3.0 * rows).reshape(rows, 3), "x1": np.ones(4)}
    parts = list(in_parts(feeds, contract(least, ("batch", 3), ("n",)), "batch"))
    assert [len(part["x0"]) for part in parts] == counts
    assert np.array_equal(np.concatenate([part["x0"] for part in parts]), feeds["x0"])
    assert all(part["x1"] is feeds["x1"] for part in parts)


@pytest.mark.parametrize(
    ("shapes", "rows"),
    [
        ((("batch", 3),), None),
        ((("n", 3),), "batch"),
        ((("batch", 3), (2, "batch")), "batch"),
        ((("batch * 2", 3),), "batch"),
    ],
)
def test_other_inputs_stay_whole(shapes: tuple[tuple[Dimension, ...], ...], rows: str) -> None:
    feeds = {f"x{place}": np.ones((4, 4)) for place in range(len(shapes))}
    (part,) = in_parts(feeds, contract(1, *shapes), rows)
    assert part is feeds
