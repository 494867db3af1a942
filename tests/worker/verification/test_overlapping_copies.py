"""A line that reads memory while it writes to it is the model's fault, not the exporter's."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.overlapping_copies import overlapping_finding

CODE = """
class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        LINE
        return y

def build():
    return Net().eval()
"""
CONTRACT = Contract(
    (TensorSpec("x", "float32", (2, 3, 8)),), (TensorSpec("y", "float32", (2, 3, 8)),), ()
)
X = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)


def case(folder: Path, line: str) -> TorchCase:
    loaded = load_model(factory_source(folder, CODE.replace("LINE", line)))
    return TorchCase.of(loaded, ContractModule(loaded, CONTRACT), {"x": X})


def shifted() -> np.ndarray:
    """Return what the line says: what it reads is read before anything is written."""
    y = 2 * X
    return np.concatenate([y[..., :1], y[..., :-1]], -1)


def test_a_shift_within_one_tensor_is_the_models(tmp_path: Path) -> None:
    own = case(tmp_path, "y[:, :, 1:] = y[:, :, :-1]")
    with torch.no_grad():
        expected = {"y": own.module(torch.from_numpy(X))[0].numpy()}
    found = overlapping_finding(own, "typical", expected, {"y": shifted()})
    assert found is not None
    assert (found.code, found.evidence["owner"]) == ("N517", "module")
    assert found.place.source is not None
    assert found.place.source.endswith(":9") or ":" in found.place.source
    wrong = {"y": shifted() * 1.1}
    assert overlapping_finding(own, "typical", expected, wrong) is None, "the graph is wrong, too"


@pytest.mark.parametrize(
    "line",
    [
        "y[:, :, 1:] = y[:, :, :-1].clone()",
        "y[:, 0] = y[:, 1]",
        "y.mul_(y)",
        "y[:, :, 4:] = y[:, :, :4]",
    ],
)
def test_what_is_read_elsewhere_is_no_fault(tmp_path: Path, line: str) -> None:
    own = case(tmp_path, line)
    with torch.no_grad():
        computed = {"y": own.module(torch.from_numpy(X))[0].numpy()}
    assert overlapping_finding(own, "typical", {"y": computed["y"] + 1}, computed) is None
