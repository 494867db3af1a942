"""What the contract says of axes, while a model is traced."""

import contextlib

import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters import dynamic_trace
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel

CONTRACT = Contract(
    tuple(TensorSpec(name, "float32", ("batch", 4, 6)) for name in ("left", "right")),
    (TensorSpec("y", "float32", ("batch", 4, 6)),),
    (Axis("batch", 1, 2, 9),),
)


class Siamese(torch.nn.Module):
    """One encoder for two batches, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.Conv1d(4, 4, 1)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        one, other = self.encoder(torch.cat([left, right])).chunk(2, dim=0)
        return one - other


def test_two_batches_of_one_size_are_joined_and_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    siamese = Siamese()
    module = ContractModule(LoadedModel(siamese, "a test's"), CONTRACT)
    given = tuple(torch.randn(5, 4, 6) for _ in range(2))
    traced = tuple(each[:2] for each in given)
    program = dynamic_trace.trace(module, traced, CONTRACT)
    (found,) = program.module()(*given)
    torch.testing.assert_close(found, siamese(*given))
    assert not module._forward_pre_hooks

    monkeypatch.setattr(
        dynamic_trace, "shared_axes", lambda *_: contextlib.nullcontext(), raising=True
    )
    with pytest.raises(UnexportableError, match="batch"):
        dynamic_trace.trace(module, traced, CONTRACT)
