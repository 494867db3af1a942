"""When a difference is one whose cause is worth looking for."""

import numpy as np
import pytest

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseMetrics
from convkit.worker.metrics.parity_cause import parity_cause
from convkit.worker.metrics.tensor_metrics import compare


class Plain:
    """A session at a lower optimization level that returns what the original does."""

    def __init__(self, values):
        self._values = values

    def run(self, feeds):
        return {"y": self._values}


def cause(original, built, plain=None):
    expected = np.asarray(original, np.float32)
    unoptimized = expected if plain is None else np.asarray(plain, np.float32)
    metrics = compare("y", expected, np.asarray(built, np.float32))
    case = CaseMetrics(case="typical", outputs=(metrics,), seconds=0.0)
    return parity_cause(
        Contract((), (), ()),
        lambda _: Plain(unoptimized),
        [("none", None)],
        [case],
        lambda _: {},
        lambda _: {"y": expected},
        lambda _feeds, _name: None,
    )


def test_another_direction_is_traced_to_the_optimizations():
    (finding,) = cause([1, 0, 0], [0, 1, 0])
    assert finding.code == "N401"


@pytest.mark.parametrize("plain", [[30, 0, 0], [np.nan, 0, 0]], ids=["farther", "NaN"])
def test_a_level_that_is_no_nearer_does_not_blame_the_optimizations(plain):
    (finding,) = cause([1, 0, 0], [0, 1, 0], plain)
    assert finding.code == "N402"


@pytest.mark.parametrize(
    ("original", "built"),
    [([1e-7, -2e-7], [-1e-7, 3e-7]), ([0.4], [-0.4]), ([[0.5]], [[0.2]])],
    ids=["noise around zero", "one number", "one number in two dimensions"],
)
def test_what_has_no_direction_says_nothing_about_optimizations(original, built):
    assert cause(original, built) == []


@pytest.mark.parametrize("built", [[np.nan, 1e-7], [np.inf, 1e-7]], ids=["NaN", "infinity"])
def test_what_is_not_finite_is_never_noise(built):
    (finding,) = cause([1e-7, 1e-7], built)
    assert finding.code == "N401"
