"""What is wrong in an ML program, not only where."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted
from mil_programs import mb, small_program
from torch import nn

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreml.causes import ProgramSearch
from convkit.runtimes.coreml.conversion import missing_operators
from convkit.runtimes.coreml.float32_parity import explain_float32
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.exporters.export_job import WRAPPER
from convkit.worker.mil.program import Program
from convkit.worker.original.contract_module import ContractModule

X = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))
REMEDY = Remedy("Use another release.")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.last = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(nn.functional.gelu(3 * self.first(x), approximate="tanh")))


@pytest.fixture(scope="module")
def module() -> ContractModule:
    return behind_contract(Net(), {"x": X}, ["y"])


def search(module: ContractModule, program: Program) -> ProgramSearch:
    recording = record(module, {"x": X}, ("y",), wrapper=WRAPPER)
    state = state_of(module.model)
    return ProgramSearch(program, recording, state, {"x": X.numpy()}, "typical", REMEDY)


def by_hand(module: ContractModule, **changes: object) -> Program:
    """Write the module's program as a converter with a fault might."""
    weights = {name: each.numpy() for name, each in state_of_tensors(module).items()}
    given = {"epsilon": np.float32(1e-5), "mode": "TANH_APPROXIMATION", **weights, **changes}

    def body(x):
        x = mb.linear(x=x, weight=given["first.weight"], bias=given["first.bias"], name="first")
        x = mb.gelu(x=mb.mul(x=x, y=np.float32(3.0)), mode=given["mode"], name="bent")
        gamma, beta = given["norm.weight"], given["norm.bias"]
        x = mb.layer_norm(
            x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=given["epsilon"], name="norm"
        )
        return mb.linear(x=x, weight=given["last.weight"], bias=given["last.bias"], name="y")

    return small_program(body, {"x": ((2, 8), "fp32")})


def state_of_tensors(module: ContractModule) -> Mapping[str, torch.Tensor]:
    return {name: each.detach() for name, each in module.model.state_dict().items()}


def test_a_right_program_has_no_cause(module: ContractModule) -> None:
    assert search(module, by_hand(module)).causes(None) == []


@pytest.mark.parametrize(
    ("changes", "code", "node", "says"),
    [
        ({"epsilon": np.float32(1e-1)}, "N405", "norm", "epsilon is 0.1 and should be 1e-05"),
        ({"mode": "EXACT"}, "N405", "bent", "should compute GELU's tanh approximation"),
        ({"last.bias": np.linspace(-1, 1, 8).astype(np.float32)}, "N403", "y", "last.bias"),
    ],
)
def test_the_cause_is_named_in_the_program_s_words(
    module: ContractModule, changes: dict, code: str, node: str, says: str
) -> None:
    finding = search(module, by_hand(module, **changes)).causes(None)[0]
    assert (finding.code, finding.place.node) == (code, node)
    assert says in finding.message
    assert finding.evidence["proven"] is True
    assert finding.remedy == REMEDY
    assert "LayerNormalization" not in finding.message
    assert "//" not in finding.message


class Shares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.sqrt(self.first(x).abs() + 1.0) / 0.7)


def test_an_operation_that_computes_more_than_the_original_is_named() -> None:
    module = behind_contract(Shares(), {"x": X}, ["y"])
    weights = {name: each.numpy() for name, each in state_of_tensors(module).items()}

    def body(x):
        x = mb.linear(x=x, weight=weights["first.weight"], bias=weights["first.bias"])
        x = mb.sqrt(x=mb.add(x=mb.abs(x=x), y=np.float32(1.0)))
        x = mb.mod(x=x, y=np.float32(0.7), name="shares")
        return mb.linear(x=x, weight=weights["last.weight"], bias=weights["last.bias"], name="y")

    program = small_program(body, {"x": ((2, 8), "fp32")})
    finding, *_ = search(module, program).causes(None)
    assert (finding.code, finding.evidence["kind"]) == ("N405", "operator")
    assert "mod shares: it is mod and should be real_div" in finding.message


def test_a_weight_of_another_layer_is_named(module: ContractModule) -> None:
    weight = state_of_tensors(module)["first.weight"].numpy()
    finding = search(module, by_hand(module, **{"last.weight": weight})).causes(None)[0]
    assert finding.code in ("N403", "N404")
    assert finding.place.node == "y"


def test_a_program_that_does_not_run_has_no_cause(module: ContractModule) -> None:
    wide = dataclasses.replace(
        search(module, by_hand(module)), feeds={"x": np.zeros((3, 8), np.float32)}
    )
    assert wide.causes(None) == []


def explained(module: ContractModule) -> list[Finding]:
    conversion = converted(module, {"x": X})
    with torch.no_grad():
        expected = {"y": module(X)[0].numpy()}
    feeds = {"x": X.numpy()}
    found, _ = explain_float32(conversion, module.contract, "typical", feeds, expected)
    return search(module, conversion.program).causes(found)


@pytest.mark.thorough
def test_a_wrong_translation_is_named_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """coremltools' own gelu, which overlooks the approximation that is asked for."""
    from coremltools.converters.mil.frontend.torch import ops

    monkeypatch.setattr(missing_operators, "gelu", ops.gelu)
    (finding,) = explained(behind_contract(Net(), {"x": X}, ["y"]))
    assert finding.code == "N405"
    assert "should compute GELU's tanh approximation" in finding.message
    assert finding.place.source is not None
    assert finding.place.source.startswith("test_program_causes.py:")
