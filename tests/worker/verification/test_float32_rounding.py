"""What float32 resolves near a case, which one run alone may not show."""

import numpy as np
import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.float64_mode import run_in_float64
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification import float32_rounding

CONTRACT = Contract((TensorSpec("x", "float32", (4,)),), (TensorSpec("y", "float32", (4,)),), ())


class Sums(torch.nn.Module):
    """Weights whose squares add up exactly in float32, times what is the same for small inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", torch.full((4, 64), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.clamp(min=1.0).unsqueeze(-1) * self.weights).square().sum(-1) - 16


def test_zeros_show_what_neighboring_weights_round(monkeypatch) -> None:
    loaded = LoadedModel(Sums().eval(), "a test's")
    module = ContractModule(loaded, CONTRACT)
    case = TorchCase.of(loaded, module, {"x": np.zeros(4, np.float32)})
    exact = run_in_float64(module, case.inputs, ("y",))
    found = float32_rounding._resolved(case, ("y",), exact, inside=False)
    assert found["y"].absolute > 0
    before = loaded.module.weights.clone()
    assert torch.equal(before, torch.full((4, 64), 0.5))  # as they were
    monkeypatch.setattr(float32_rounding, "_NEAR", ())
    alone = float32_rounding._resolved(case, ("y",), exact, inside=False)
    assert alone["y"].absolute == 0
    # A sum in another order is off, whatever the order of these happens to give.
    inside = float32_rounding._resolved(case, ("y",), exact, inside=True)
    assert 0 < inside["y"].absolute < 1e-4
