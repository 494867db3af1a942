"""Whole numbers that a model divides by are drawn from 1."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.survey.sizes.size_trials import SizeTrial, Trials
from convkit.worker.survey.values.index_ranges import without_markers

CONTRACT = Contract(
    (TensorSpec("n", "int64", ("batch",)),),
    (TensorSpec("y", "float32", ("batch",)),),
    (Axis("batch", 1, 2, 4),),
)


class Ratio(Trials):
    """What a model makes of its inputs."""

    def __init__(self, model: Callable[..., np.ndarray]) -> None:
        super().__init__(60.0)
        self.model = model

    def values(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with np.errstate(all="ignore"):
            return {"y": self.model(*(each.astype(np.float32) for each in feeds.values()))}

    def _feed(self, feeds: Mapping[str, np.ndarray]) -> SizeTrial:
        return SizeTrial({"y": feeds["n"].shape}, "", 1.0)


@pytest.mark.parametrize(
    ("model", "low"),
    [
        (lambda n: 3 / n, 1),
        (lambda n: n * 3, 0),
        (lambda n: n + np.inf, 0),  # whatever the number
    ],
)
def test_a_divisor_begins_at_one(model: Callable[[np.ndarray], np.ndarray], low: int) -> None:
    drafted = SurveyResult(CONTRACT, {"n": Sample("integers", (0.0, 5.0))}, ran=True)
    found = without_markers(drafted, Ratio(model))
    assert found.samples["n"].numbers == (low, 5.0)
    assert any("samples begin at 1" in note for note in found.notes) == bool(low)


@pytest.mark.parametrize(
    ("example", "narrowed"),
    [
        ({"n": np.array([0, 3]), "m": np.array([4, 5])}, "m"),
        ({"n": np.array([1]), "m": np.array([0])}, "n"),
    ],
)
def test_of_two_that_make_nan_together_the_one_stays_that_the_example_has(
    example: dict[str, np.ndarray], narrowed: str
) -> None:
    contract = dataclasses.replace(
        CONTRACT, inputs=tuple(TensorSpec(name, "int64", ("batch",)) for name in ("n", "m"))
    )
    samples = {name: Sample("integers", (0.0, 5.0)) for name in ("n", "m")}
    share = Ratio(lambda n, m: np.clip(n / m, 0, 1) if narrowed == "m" else np.clip(m / n, 0, 1))
    found = without_markers(SurveyResult(contract, samples, ran=True), share, example)
    assert {name for name, each in found.samples.items() if each.numbers[0]} == {narrowed}
