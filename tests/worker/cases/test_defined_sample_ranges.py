"""Ranges in which a model is defined, from values at their ends."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.defined_sample_ranges import defined_ranges
from convkit.worker.cases.values.sampled_values import Draw, ends_of

CONTRACT = Contract((TensorSpec("x", "float32", (2,)),), (), ())


def drawn(samples: Mapping[str, Sample], draw: Draw) -> dict[str, np.ndarray]:
    ends = ends_of(samples["x"])
    assert ends is not None
    return {"x": np.array(ends if draw.extreme else (0.8, 0.8))}


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
    assert (
        defined_ranges(
            CONTRACT, samples, drawn, lambda feeds: not all(map(is_defined, feeds["x"].tolist()))
        )
        == found
    )
