"""Modules that a source leaves in training mode, while the model is in eval mode."""

import pytest
import torch
from reference_runs import run

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Source
from convkit.worker.original.loading.training_mode import left_in_training, training_finding

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 3, 6)),),
    (TensorSpec("y", "float32", ("batch", 4, 6)),),
    (Axis("batch", 1, 2, 3),),
)
CODE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def forward(self, x):
        return super().forward(x)

def build():
    model = Net(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4), nn.Dropout(0.5))
    CHANGE
    return model
"""


def found(tmp_path, change):
    (tmp_path / "model.py").write_text(CODE.replace("CHANGE", change))
    source = Source("factory", path=str(tmp_path / "model.py"), identifier="build")
    _, findings, _ = run(tmp_path, source, CONTRACT, {})
    return [finding for finding in findings if finding.code == "E306"]


@pytest.mark.parametrize(
    ("change", "path"),
    [("model.eval()[1].train()", "1"), ("model.eval()[2].train()", "2")],
    ids=["norm", "dropout"],
)
def test_a_module_that_computes_otherwise_in_training_is_named(tmp_path, change, path):
    (finding,) = found(tmp_path, change)
    assert (finding.place.module, finding.severity) == (path, "warning")


@pytest.mark.parametrize(
    "change", ["model.eval()", "model.train()", "model.eval()[0].train()"], ids=str
)
def test_a_mode_that_changes_nothing_or_is_that_of_a_new_model_is_left_alone(tmp_path, change):
    assert not found(tmp_path, change)


def test_a_trained_model_in_training_mode_is_named(tmp_path):
    (finding,) = found(tmp_path, "model(torch.randn(8, 3, 6)); model.train()")
    assert finding.place.module is None
    assert finding.message.startswith("the model comes in training mode, and its trained")


def test_a_trained_model_in_eval_mode_is_left_alone(tmp_path):
    assert not found(tmp_path, "model(torch.randn(8, 3, 6)); model.eval()")


def test_the_model_is_as_before_afterwards():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout()).eval()
    model[0].train()
    paths = left_in_training(model)
    model.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    drawn = torch.random.get_rng_state()
    x = torch.arange(12.0).reshape(3, 4)

    def outputs():
        with torch.inference_mode():
            return {"y": model(x).numpy()}

    finding = training_finding(model, paths, outputs)
    assert finding is not None
    assert finding.place.module == "0"
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
