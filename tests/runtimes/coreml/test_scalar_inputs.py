"""Inputs that are scalars, which Core ML has not: a package takes one element in their place."""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, saved
from torch import nn

from convkit.protocol.contract import Contract, TensorSpec
from convkit.runtimes.coreml.conversion.declared_shapes import served_contract
from convkit.runtimes.coreml.packages.input_types import as_served
from convkit.runtimes.coreml.session import stated_contract
from convkit.worker.mil.evaluation.evaluator import Evaluator


class Step(nn.Module):
    """A scheduler's step: the number of the step looks up a table, and a factor is a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(1, 2, 10))
        self.embedding = nn.Embedding(10, 3)

    def forward(self, x: torch.Tensor, step: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        earlier = torch.clamp(step - 2, min=0)
        return x * self.table[step] * scale + self.table[earlier] + self.embedding(step)


def test_a_step_looks_up_what_torch_looks_up(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Step().eval()
    x, scale = torch.randn(BATCH.typical, 3), torch.tensor(0.5)
    inputs = {"x": x, "step": torch.tensor(7), "scale": scale}
    contract = Contract(
        (
            TensorSpec("x", "float32", ("batch", 3)),
            TensorSpec("step", "int64", ()),
            TensorSpec("scale", "float32", ()),
        ),
        (TensorSpec("y", "float32", ("batch", 3)),),
        (BATCH,),
    )
    with torch.no_grad():
        behind = behind_contract(module, inputs, ["y"], ())
    behind.contract = contract
    program = saved(converted(behind, inputs), tmp_path)
    assert stated_contract(program).inputs[1] == TensorSpec("step", "int32", (1,))
    assert served_contract(contract).inputs[1] == TensorSpec("step", "int32", (1,))
    for step in (0, 1, 2, 9):
        with torch.no_grad():
            expected = module(x, torch.tensor(step), scale).numpy()
        feeds = {"x": x.numpy(), "step": np.array(step), "scale": scale.numpy()}
        types = {feature.name: feature.dtype for feature in program.inputs}
        given = {name: as_served(array, types[name]) for name, array in feeds.items()}
        found = Evaluator(program).run(given).outputs["y"]
        assert found == pytest.approx(expected, abs=1e-6)
