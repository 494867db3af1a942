"""What rounding weights and inputs makes of an original."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_graphs import CONTRACT

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import CaseRecord, LowType
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.equal_scores import write_open
from convkit.worker.reference.rounded_original import rounded_outputs, rounded_weights

WIDE = Contract((TensorSpec("x", "float32", (4, 64)),), (TensorSpec("y", "float32", (4, 64)),), ())


def measured(folder: Path, module: torch.nn.Module, dtype: LowType, scale: float = 1.0) -> float:
    """Return how far a module is off in a typical case, in parts of its outputs."""

    def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            return {"y": module(torch.tensor(feeds["x"])).numpy()}

    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32) * scale
    feeds = {"x": values}
    write_tensors(folder, "typical", "inputs", feeds)
    write_tensors(folder, "typical", "outputs", run(feeds))
    record = CaseRecord("typical", "ladder", "", {}, 0.01)
    found = rounded_outputs(module, run, WIDE, [record], folder, (dtype,))
    return found[0].metrics.nrmse if found else float("nan")


@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [("float16", 1e-4, 1e-3), ("bfloat16", 1e-3, 1e-2), ("int8", 1e-3, 2e-2), ("int4", 2e-2, 3e-1)],
)
def test_a_layer_is_off_by_what_its_type_rounds(
    tmp_path: Path, dtype: LowType, least: float, most: float
) -> None:
    torch.manual_seed(0)
    assert least < measured(tmp_path, torch.nn.Linear(64, 64), dtype) < most


def test_a_difference_of_large_numbers_is_off_by_more_than_its_type_is_allowed(
    tmp_path: Path,
) -> None:
    class Waves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    assert measured(tmp_path, Waves(), "float16", scale=1000.0) > 0.01
    assert np.isnan(measured(tmp_path, Waves(), "float16", scale=1e6))  # infinite: no figure


def test_labels_that_the_type_leaves_open_do_not_differ(tmp_path: Path) -> None:
    labels = (TensorSpec("y", "int64", (4,)),)
    contract = Contract((TensorSpec("x", "float32", (4, 64)),), labels, ())
    x = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    write_tensors(tmp_path, "typical", "inputs", {"x": x})
    write_tensors(tmp_path, "typical", "outputs", {"y": np.arange(4)})
    record = CaseRecord("typical", "ladder", "", {}, 0.01)

    def agreement() -> float:
        module, other = torch.nn.Linear(64, 64), {"y": np.array([0, 1, 5, 9])}
        given = (contract, [record], tmp_path, ("float16",))
        return rounded_outputs(module, lambda _: other, *given)[0].metrics.agreement

    assert agreement() == 0.5
    others = np.array([[0, 0], [1, 1], [2, 5], [3, 3]])
    write_open(tmp_path, "typical", {"y": others}, "float16")
    assert agreement() == 0.75


@pytest.mark.parametrize("dtype", ["float16", "int4"])
def test_weights_are_as_before_afterwards(dtype: LowType) -> None:
    torch.manual_seed(0)
    module = torch.nn.LSTM(8, 32)
    values = torch.randn(5, 1, 8)
    before = module(values)[0]
    shared = [each.data_ptr() for each in module.parameters()]
    with rounded_weights(module, dtype):
        assert not torch.equal(module(values)[0], before)
    assert torch.equal(module(values)[0], before)
    assert [each.data_ptr() for each in module.parameters()] == shared


def test_tables_keep_their_rows_in_whole_numbers() -> None:
    module = torch.nn.Sequential(torch.nn.Embedding(8, 32), torch.nn.Linear(32, 32))
    table = module[0].weight.clone()
    with rounded_weights(module, "int8"):
        assert torch.equal(module[0].weight, table)
    with rounded_weights(module, "float16"):
        assert not torch.equal(module[0].weight, table)


def test_a_contract_without_types_runs_nothing(tmp_path: Path) -> None:
    module = torch.nn.Linear(1, 1)
    assert rounded_outputs(module, dict, CONTRACT, [], tmp_path, ()) == ()


def test_int8_is_run_again_with_what_goes_into_its_products(tmp_path: Path) -> None:
    """Values of which one is a hundred times the others keep few steps for them."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Softshrink(0.0))
    values = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    values[0, 0] = 100.0

    def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            return {"y": module(torch.tensor(feeds["x"])).numpy()}

    write_tensors(tmp_path, "typical", "inputs", {"x": values})
    write_tensors(tmp_path, "typical", "outputs", run({"x": values}))
    record = CaseRecord("typical", "ladder", "", {}, 0.01)
    before = run({"x": values})["y"]
    found = rounded_outputs(module, run, WIDE, [record], tmp_path, ("int8", "int4"))
    assert [(each.type, each.activations) for each in found] == [
        ("int8", False),
        ("int4", False),
        ("int8", True),
    ]
    assert found[2].metrics.nrmse > 2 * found[0].metrics.nrmse
    np.testing.assert_array_equal(run({"x": values})["y"], before)  # the hooks are gone


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_original_is_measured_without_hooks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    module = torch.jit.script(layers)
    assert 1e-3 < measured(tmp_path, module, "int8") < 2e-2
