"""Ranges in which a model is defined, from values at their ends."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Held, Sample
from convkit.worker.cases.defined_sample_ranges import defined_ranges, range_of
from convkit.worker.cases.values.sampled_values import Draw

USUAL = 0.8
CONTRACT = Contract((TensorSpec("x", "float32", (2,)),), (), ())


def drawn(samples: Mapping[str, Sample], draw: Draw) -> dict[str, np.ndarray]:
    ends = range_of(samples["x"])
    assert ends is not None
    return {"x": np.array(ends if draw.extreme else (USUAL, USUAL))}


@pytest.mark.parametrize(
    ("is_defined", "found"),
    [
        (lambda x: x > 0, {"x": (0.08, 8.0)}),
        (lambda x: abs(x) < 5, {"x": (-4.0, 4.0)}),
        (lambda x: x < 1e9, {}),
        (lambda x: x == 0.8, {}),  # a single value is no range
        (lambda _: False, {}),
    ],
)
def test_both_ends_move_to_where_the_model_is_defined(
    is_defined: Callable[[float], bool], found: dict[str, tuple[float, float]]
) -> None:
    samples = {"x": Sample("normal", (0.0, 1.0))}
    assert defined_ranges(
        CONTRACT, samples, drawn, lambda feeds: not all(map(is_defined, feeds["x"].tolist()))
    ) == {name: Sample("uniform", ends) for name, ends in found.items()}


# Widths and heights of pictures: nothing is divided by zero, and an id may be any.
@pytest.mark.parametrize(
    ("is_defined", "found"),
    [
        (lambda size: size > 0, {"x": Sample("integers", (1, 641))}),
        (lambda size: size % 2 == 0 and 0 < size < 600, {"x": Sample("integers", (16, 561))}),
        (lambda _: True, {}),
    ],
)
def test_whole_numbers_at_which_a_model_is_undefined_are_left_out(
    is_defined: Callable[[int], bool], found: dict[str, Sample]
) -> None:
    def is_undefined(feeds: Mapping[str, np.ndarray]) -> bool:
        return not all(map(is_defined, feeds["x"].astype(int).tolist()))

    def whole(samples: Mapping[str, Sample], draw: Draw) -> dict[str, np.ndarray]:
        return {"x": np.round(drawn(samples, draw)["x"] + 5 * (not draw.extreme))}

    samples = {"x": Sample("integers", (0, 641))}
    assert defined_ranges(CONTRACT, samples, whole, is_undefined) == found
    held = {"x": Sample("integers", (0, 641), held=(Held(0, None),))}
    assert range_of(held["x"]) is None
