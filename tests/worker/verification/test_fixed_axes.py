"""An axis is fixed if another size of it alone is refused."""

from collections.abc import Callable

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import CaseMetrics
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.verification.fixed_axes import fixed_axes

X = TensorSpec("x", "float32", ("batch", "sequence", 3))
CONTRACT = Contract((X,), (X,), (Axis("batch", 1, 2, 4), Axis("sequence", 2, 6, 9)))
SIZES = {
    "smallest": {"batch": 1, "sequence": 2},
    "typical": {"batch": 2, "sequence": 6},
    "largest": {"batch": 4, "sequence": 9},
}


def found(accepts: Callable[[int, int], bool]) -> list[str]:
    def run(feeds: dict[str, np.ndarray]) -> None:
        batch, sequence, width = feeds["x"].shape
        assert width == 3
        if not accepts(batch, sequence):
            raise RunFailedError("bad reshape")

    def feeds(case: str) -> dict[str, np.ndarray]:
        return {"x": np.ones((*SIZES[case].values(), 3), np.float32)}

    cases = []
    for name in SIZES:
        try:
            run(feeds(name))
            cases.append(CaseMetrics(name, 0.1, ()))
        except RunFailedError as error:
            cases.append(CaseMetrics(name, 0.1, (), error=str(error)))
    findings = fixed_axes(CONTRACT, cases, SIZES, feeds, run)
    assert all(each.evidence["proven"] is True for each in findings)
    return [str(each.evidence["axis"]) for each in findings]


@pytest.mark.parametrize(
    ("accepts", "axes"),
    [
        (lambda _, sequence: sequence == 6, ["sequence"]),
        (lambda batch, _: batch == 2, ["batch"]),
        (lambda batch, sequence: (batch, sequence) == (2, 6), ["batch", "sequence"]),
        # The product is what does not fit: another size of one axis alone fails, too.
        (lambda batch, sequence: batch * sequence <= 12, []),
        (lambda *_: True, []),
        (lambda *_: False, []),
    ],
)
def test_only_the_axis_that_is_refused_is_named(
    accepts: Callable[[int, int], bool], axes: list[str]
) -> None:
    assert found(accepts) == axes
