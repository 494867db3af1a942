"""What the original decides by rounding is no fault of the graph, and a wrong graph is none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.original.torch_dtypes import to_arrays
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.ties import undecided_finding


def net(width: int, *body: str) -> str:
    """Return the code of a module that makes `h` of its input with a linear layer."""
    lines = "\n        ".join(body)
    return f"""
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, {width})

    def forward(self, x):
        h = self.layer(x)
        {lines}

def build():
    return Net()
"""


# Ten scores in pairs that are equal but for rounding: which comes first is open.
RANKED = net(
    20,
    "doubled = torch.cat([h, h * 3 / 3 * 7 / 7], -1).softmax(-1)",
    "return doubled.topk(20, -1).indices",
)
# The sign of a sum that is zero but for rounding.
SIGNED = net(
    6,
    "h = torch.nn.functional.layer_norm(h, (6,))",
    "return torch.where(h.sum(-1, keepdim=True) > 0, h * 1.5, h)",
)
# Large values that nearly cancel out: rounding shows, and nothing is decided.
CANCELLED = net(6, "return (h * 1000 + 30000) - 30000 - h * 999")
STEADY = net(6, "return torch.tanh(h)")


def case_of(folder: Path, code: str, output: TensorSpec) -> TorchCase:
    contract = Contract((TensorSpec("x", "float32", (64, 8)),), (output,), ())
    loaded = load_model(factory_source(folder, code))
    x = np.random.default_rng(3).normal(size=(64, 8)).astype(np.float32)
    return TorchCase.of(loaded, ContractModule(loaded, contract), {"x": x})


def found(
    case: TorchCase, changed: Callable[[torch.Tensor], torch.Tensor], *, wrong: float = 0.0
) -> Finding | None:
    """Return the finding on a graph that reads other inputs within rounding and is `wrong` by so
    much.
    """
    (name,) = (spec.name for spec in case.module.contract.outputs)
    with torch.no_grad():
        expected = to_arrays((name,), case.module(*case.inputs.values()))
        computed = to_arrays((name,), case.module(*map(changed, case.inputs.values())))
    if wrong:
        computed[name] = computed[name] + np.asarray(wrong, computed[name].dtype)
    before = [each.clone() for each in case.module.parameters()]
    finding = undecided_finding(case, "typical", expected, computed, {})
    after = list(case.module.parameters())
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    return finding


def by_units(x: torch.Tensor) -> torch.Tensor:
    """Return values that are off as another kernel's are."""
    random = torch.Generator().manual_seed(99)
    return x * (1 + torch.randint(-5, 6, x.shape, generator=random) * 2.0**-23)


RANKS = TensorSpec("order", "int64", (64, 20))
VALUES = TensorSpec("y", "float32", (64, 6))


def test_the_order_of_equals_is_the_originals_own_choice(tmp_path: Path) -> None:
    finding = found(case_of(tmp_path, RANKED, RANKS), by_units)
    assert finding is not None
    assert finding.code == "N509"
    assert finding.evidence["covered"] >= 0.5
    assert (finding.place.source or "").startswith("factory.py:")
    assert finding.remedy is not None
    assert 0 < finding.remedy.change["verify.outputs.order"]["agreement"] < 1


def test_the_sign_of_nothing_is_the_originals_own_choice(tmp_path: Path) -> None:
    finding = found(case_of(tmp_path, SIGNED, VALUES), by_units)
    assert finding is not None
    assert finding.evidence["operation"] == "sum.dim_IntList"
    assert finding.remedy is not None
    assert finding.remedy.change == {}


@pytest.mark.parametrize("code", [SIGNED, CANCELLED, STEADY], ids=["signed", "cancelled", "steady"])
def test_a_wrong_graph_is_not_excused(tmp_path: Path, code: str) -> None:
    case = case_of(tmp_path, code, VALUES)
    assert found(case, by_units, wrong=0.02) is None
    assert found(case, lambda x: x, wrong=0.005) is None


def test_a_wrong_order_is_not_excused(tmp_path: Path) -> None:
    assert found(case_of(tmp_path, RANKED, RANKS), lambda x: x.flip(0)) is None


def test_a_graph_that_agrees_needs_no_excuse(tmp_path: Path) -> None:
    assert found(case_of(tmp_path, STEADY, VALUES), by_units) is None


# The remainder of multiples is nothing, or a whole step but for rounding.
PHASE = """
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.remainder(x[:, :6], 0.1)

def build():
    return Net()
"""


def test_a_tie_of_an_input_is_named_with_its_value(tmp_path: Path) -> None:
    loaded = load_model(factory_source(tmp_path, PHASE))
    contract = Contract((TensorSpec("x", "float32", (64, 8)),), (VALUES,), ())
    x = np.full((64, 8), 8.0, np.float32)
    case = TorchCase.of(loaded, ContractModule(loaded, contract), {"x": x})
    with torch.no_grad():
        expected = to_arrays(("y",), case.module(*case.inputs.values()))
    # As another kernel has it, everywhere: no element gives a scale.
    finding = undecided_finding(
        case, "decisions", expected, {"y": np.zeros_like(expected["y"])}, {}
    )
    assert finding is not None
    assert finding.code == "N509"
    assert finding.evidence["element"].startswith("y[0, 0] is 0, in the original 0.0999")


def test_the_inputs_value_at_the_same_place_is_named(tmp_path: Path) -> None:
    code = PHASE.replace("x[:, :6]", "x")
    loaded = load_model(factory_source(tmp_path, code))
    output = TensorSpec("y", "float32", (64, 8))
    contract = Contract((TensorSpec("x", "float32", (64, 8)),), (output,), ())
    x = np.full((64, 8), 8.0, np.float32)
    case = TorchCase.of(loaded, ContractModule(loaded, contract), {"x": x})
    with torch.no_grad():
        expected = to_arrays(("y",), case.module(*case.inputs.values()))
    finding = undecided_finding(
        case, "decisions", expected, {"y": np.zeros_like(expected["y"])}, {}
    )
    assert finding is not None
    assert "for x[0, 0] = 8, y[0, 0] is 0" in finding.message


def test_an_output_that_is_almost_zero_here_alone_is_no_obstacle(tmp_path: Path) -> None:
    """What is left of numbers that cancel out is as the graph has it in no other run."""
    code = net(6, "return (h @ h.T > h.T.mul(3).T @ h.T / 3).long(), h * 0.1 - h / 10")
    case = case_of(tmp_path, code, RANKS)
    contract = Contract(
        case.module.contract.inputs,
        (TensorSpec("signs", "int64", (64, 64)), TensorSpec("rest", "float32", (64, 6))),
        (),
    )
    loaded = load_model(factory_source(tmp_path, code))
    x = case.inputs["x"].numpy()
    case = TorchCase.of(loaded, ContractModule(loaded, contract), {"x": x})
    with torch.no_grad():
        expected = to_arrays(("signs", "rest"), case.module(*case.inputs.values()))
        computed = to_arrays(("signs", "rest"), case.module(*map(by_units, case.inputs.values())))
    computed["rest"] = expected["rest"] + np.float32(3e-7)
    usual = {"rest": 0.1}
    found = [undecided_finding(case, "values:1", expected, computed, each) for each in ({}, usual)]
    assert [each and each.code for each in found] == [None, "N509"]
