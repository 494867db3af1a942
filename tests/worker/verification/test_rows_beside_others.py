"""A row that a larger one of its batch drowns is named, and only if it is right by itself."""

from collections.abc import Callable

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import CaseMetrics
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.verification.rows_beside_others import drowned_rows

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 8)),),
    (TensorSpec("y", "float32", ("batch", 8)),),
    (Axis("batch", 1, 2, 4),),
)
X = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32) * [[0.05], [0.06], [100.0]]


def rounded(x: np.ndarray) -> np.ndarray:
    """Return values in 255 steps of one size, as dynamic quantization makes them."""
    step = np.abs(x).max() / 127
    return np.round(x / step) * step


def by_row(x: np.ndarray) -> np.ndarray:
    return np.concatenate([rounded(row[None]) for row in x])


class Built:
    """Stands for a built model that computes y = x, but for `changes`."""

    def __init__(self, changes: Callable[[np.ndarray], np.ndarray]) -> None:
        self.changes = changes

    def expected(self, _: str) -> dict[str, np.ndarray]:
        return {"y": X}

    def outputs(self, _: str) -> dict[str, np.ndarray]:
        return {"y": self.changes(X)}

    def run_alone(self, _: str, rows: str, number: int) -> dict[str, np.ndarray]:
        assert rows == "batch"
        return {"y": self.changes(X[number : number + 1])}


def found(changes: Callable[[np.ndarray], np.ndarray], case: str = "example") -> list[tuple]:
    metrics = compare("y", X, changes(X))
    cases = [CaseMetrics(case, 0.1, (metrics,))]
    findings = drowned_rows(CONTRACT, "batch", cases, Built(changes))  # type: ignore[arg-type]
    return [(each.code, each.severity, each.evidence["row"]) for each in findings]


def test_rows_that_are_lost_beside_a_large_one_are_an_error() -> None:
    assert compare("y", X, rounded(X)).nrmse < 0.01, "the whole output is within any limit"
    assert found(lambda x: rounded(x) + 0.06 * (len(x) > 1)) == [("N302", "error", 1)]


def test_rows_that_suffer_are_warned_of() -> None:
    assert found(lambda x: x + 0.01 * (len(x) > 1) + 0.2 * (np.abs(x) > 1)) == [
        ("N302", "warning", 0)
    ]


@pytest.mark.parametrize("changes", [by_row, lambda x: x * 1.3, lambda x: x * (1 + 1e-6)])
def test_rows_that_are_off_by_themselves_are_left_to_the_limits(
    changes: Callable[[np.ndarray], np.ndarray],
) -> None:
    assert not found(changes)


def test_a_row_that_is_far_off_by_itself_too_is_no_matter_of_its_neighbors() -> None:
    assert not found(lambda x: x * 0.5 + 6 * (len(x) > 1))


def test_other_cases_are_left_alone() -> None:
    assert not found(lambda x: rounded(x) + 0.06 * (len(x) > 1), "extreme")
