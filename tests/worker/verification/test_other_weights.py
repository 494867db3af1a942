"""Factories that return another model each time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.other_weights import other_weights_finding

CONTRACT = Contract(
    (TensorSpec("input", "float32", (2, 4)),), (TensorSpec("y", "float32", (2, 3)),), ()
)
DRAWN = (
    "import os, torch\n"
    "def build():\n"
    "    {first}\n"
    "    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3))\n"
)
UNSEEDED = DRAWN.format(first="torch.manual_seed(int.from_bytes(os.urandom(4), 'little'))")


def _finding(folder: Path, code: str, *, off: float = 0.0) -> Finding | None:
    source = factory_source(folder, code)
    x = np.ones((2, 4), np.float32)
    reference = ContractModule(load_model(source), CONTRACT)(torch.from_numpy(x))[0]
    loaded = load_model(source)
    case = TorchCase.of(loaded, ContractModule(loaded, CONTRACT), {"input": x})
    return other_weights_finding(source, case, "example", {"y": reference.numpy() + off})


def test_weights_that_are_drawn_without_a_seed_are_named(tmp_path: Path) -> None:
    finding = _finding(tmp_path, UNSEEDED)
    assert finding is not None
    assert (finding.code, finding.severity) == ("N303", "error")
    assert finding.evidence["weights"] == ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("off", [0.0, 0.5])
def test_the_same_model_each_time_is_not_the_cause(tmp_path: Path, off: float) -> None:
    assert _finding(tmp_path, DRAWN.format(first="pass"), off=off) is None


def test_nobody_is_told_of_a_correction(tmp_path: Path) -> None:
    finding = _finding(tmp_path, UNSEEDED)
    assert finding is not None
    assert finding.advice is not None
    assert "in memory" not in finding.advice[1]
