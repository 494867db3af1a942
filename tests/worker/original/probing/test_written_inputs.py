"""Inputs that a model writes to."""

import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.written_inputs import written_findings

_CONTRACT = Contract(
    (TensorSpec("x", "float32", ("n",)),),
    (TensorSpec("y", "float32", ("n",)),),
    (Axis("n", 1, 4, 8),),
)
_VALUES = (torch.tensor([0.5, -2.0, 3.0, -1.0]),)


class Writes(torch.nn.Module):
    """Writes through a view of its input, a copy of it, or nothing that differs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone() if self.how == "copy" else x
        part = x[:3] if self.how == "view" else x
        part[part > (9 if self.how == "nothing" else 1)] = 0.0
        return x * 2


def _module(how: str) -> ContractModule:
    return ContractModule(LoadedModel(Writes(how), "writes"), _CONTRACT)


def test_the_line_that_writes_to_an_input_is_named() -> None:
    (found,) = written_findings(_module("view"), [_VALUES], None)
    assert (found.code, found.place.tensor, found.severity) == ("N514", "x", "warning")
    assert "test_written_inputs.py:" in (found.place.source or "")
    assert found.remedy is not None
    assert "x = x.clone()" in found.remedy.text
    assert _VALUES[0][2] == 3.0, "the caller's own values are left as they are"


def test_a_copy_and_a_write_that_changes_nothing_are_no_findings() -> None:
    assert written_findings(_module("copy"), [_VALUES], None) == []
    assert written_findings(_module("nothing"), [_VALUES], None) == []


def test_a_later_call_shows_what_the_first_does_not_change() -> None:
    low = (torch.zeros(4),)
    (found,) = written_findings(_module("view"), [low, _VALUES], None)
    assert found.code == "N514"
    assert written_findings(_module("view"), [low, low], None) == []


def test_a_model_that_refuses_the_inputs_has_none() -> None:
    assert written_findings(_module("view"), [(torch.tensor(1.0),)], None) == []
