"""A runtime whose results depend on earlier calls is found out, by a stand-in for such a one: no
release is known to do so for all times.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import CaseRecord, DiagnoseRequest, ReferenceResult, Source
from convkit.worker.cases.case_files import write_cases, write_tensors
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.earlier_calls import Tensors, earlier_call_finding

X = TensorSpec("x", "float32", ("batch", "width"))
CONTRACT = Contract(
    (X,), (TensorSpec("y", "float32", ("batch", "width")),), (Axis("batch", 1, 2, 4),)
)
ADVICE = "Use a different release (tools.stand-in)"


class Steady:
    """What a runtime should be."""

    def run(self, feeds: Tensors) -> dict[str, np.ndarray]:
        return {"y": np.asarray(feeds["x"]) * 2}


class PlansForTheFirstSize(Steady):
    """Computes wrong values for sizes beyond those of its first call, if that had one row."""

    def __init__(self) -> None:
        self.first: tuple[int, ...] | None = None

    def run(self, feeds: Tensors) -> dict[str, np.ndarray]:
        self.first = self.first or feeds["x"].shape
        found = super().run(feeds)
        if self.first[0] == 1 and feeds["x"].shape[1] > self.first[1]:
            found["y"] = found["y"][:, ::-1]
        return found


class Random(Steady):
    """Never the same twice, which is another finding."""

    def run(self, feeds: Tensors) -> dict[str, np.ndarray]:
        return {"y": np.random.default_rng().normal(size=feeds["x"].shape)}


class Refusing(Steady):
    def run(self, feeds: Tensors) -> dict[str, np.ndarray]:
        raise RunFailedError("no")


@pytest.fixture
def request_(tmp_path: Path) -> DiagnoseRequest:
    records = []
    for name, rows, width in (("typical", 2, 8), ("smallest", 1, 2), ("batch:3", 3, 2)):
        x = np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)
        write_tensors(tmp_path, name, "inputs", {"x": x})
        records.append(CaseRecord(name, "ladder", "", {"batch": rows, "width": width}, 0.0))
    write_cases(tmp_path, ReferenceResult(tuple(records), ()))
    return DiagnoseRequest(Source("factory"), CONTRACT, None, str(tmp_path), "typical")


def test_the_call_that_matters_is_named(request_: DiagnoseRequest) -> None:
    finding = earlier_call_finding(request_, PlansForTheFirstSize, "Stand-in 1.0", ADVICE)
    assert finding is not None
    assert finding.code == "N410"
    assert (
        "(batch=2, width=8) after a call with batch=1, width=2 than in a fresh" in finding.message
    )
    assert finding.evidence["before"] == "smallest"
    assert finding.remedy is not None
    assert finding.remedy.text.startswith(ADVICE)


@pytest.mark.parametrize("opened", [Steady, Random, Refusing])
def test_others_are_not_blamed(request_: DiagnoseRequest, opened: Any) -> None:
    assert earlier_call_finding(request_, opened, "Stand-in 1.0", ADVICE) is None
