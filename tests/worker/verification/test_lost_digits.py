"""Digits that the original itself loses are no fault of the graph, and a wrong graph has one."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.lost_digits import blamed_on_rounding

CODE = """
class Net(torch.nn.Module):
    def forward(self, x):
        return (x * x).mean(-1, keepdim=True) - x.mean(-1, keepdim=True) ** 2

def build():
    return Net()
"""
X = (np.random.default_rng(3).normal(size=(64, 8)) + 3000).astype(np.float32)


def exactly(feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    x = feeds["x"].astype(np.float64)
    return {"y": (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2}


def found(folder: Path, off: float, factor: float = 1.0) -> Finding | None:
    """Return the finding on a graph that is `off` in float32, and by a factor in float64."""
    contract = Contract(
        (TensorSpec("x", "float32", (64, 8)),), (TensorSpec("y", "float32", (64, 1)),), ()
    )
    loaded = load_model(factory_source(folder, CODE))
    case = TorchCase.of(loaded, ContractModule(loaded, contract), {"x": X})
    with torch.no_grad():
        expected = {"y": case.module(torch.from_numpy(X))[0].numpy()}
    computed = {"y": expected["y"] + np.float32(off)}
    return blamed_on_rounding(
        case, "typical", expected, computed, lambda feeds: {"y": factor * exactly(feeds)["y"]}, None
    )


def test_a_difference_of_squares_is_the_originals_and_float64_was_tried(tmp_path: Path) -> None:
    finding = found(tmp_path, 0.7)
    assert finding is not None
    assert (finding.code, finding.evidence["owner"]) == ("N509", "original")
    assert (finding.place.source or "").startswith("factory.py:")
    assert "loses these digits" in finding.message
    assert finding.remedy is not None
    assert finding.remedy.proven
    assert ".double()" in finding.remedy.text


def test_more_than_float32_loses_is_not_excused(tmp_path: Path) -> None:
    assert found(tmp_path, 50.0) is None


def test_a_graph_that_is_wrong_in_float64_is_not_excused(tmp_path: Path) -> None:
    assert found(tmp_path, 0.7, factor=9.0) is None


def test_a_graph_that_is_as_near_as_usual_has_lost_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, 0.0) is None


def test_what_is_not_a_number_has_lost_no_digits(tmp_path: Path) -> None:
    assert found(tmp_path, np.inf) is None
