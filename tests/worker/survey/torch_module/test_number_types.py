"""Weights in bfloat16, float16 and float64, and models in training mode, in what `init` drafts."""

import pytest
import torch

from convkit.host.draft.surveyed_model import tolerances_of
from convkit.protocol.messages import Source, SurveyModelRequest
from convkit.worker.job_context import Context
from convkit.worker.original.loading import load_model
from convkit.worker.stages.survey_model import run

CODE = """
import numpy as np
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
    def forward(self, x):
        return self.last(self.norm(nn.functional.silu(self.first(x))))

class Casting(Net):
    def forward(self, x):
        return super().forward(x.to(torch.bfloat16)).float()

class Mixed(Net):
    def __init__(self):
        super().__init__()
        self.first.half()
    def forward(self, x):
        return self.last(self.norm(self.first(x.half()).float()))

class Narrow(Net):
    def forward(self, x):
        if x.dtype == torch.float16:
            raise RuntimeError("not implemented for 'Half'")
        return super().forward(x)

class Buffered(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.register_buffer("scale", torch.from_numpy(np.arange(8) / 8))
    def forward(self, x):
        return super().forward(x) * self.scale

class Leaking(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
        self.scale = torch.tensor(np.arange(8) / 8)
    def forward(self, x):
        x = super().forward(x)
        return x * self.scale  # HERE

class Scaled(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
    def forward(self, x):
        return super().forward(x) * np.float64(0.5)

class Dropping(nn.Linear):
    def __init__(self):
        super().__init__(8, 8)
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)

def build():
    return CHANGE

def example():
    return torch.randn(2, 16, dtype=TYPE)
"""


def surveyed(folder, change, example=None):
    text = CODE.replace("CHANGE", change).replace("TYPE", f"torch.{example or 'float32'}")
    (folder / "net.py").write_text(text)
    file = str(folder / "net.py")
    source = Source("factory", path=file, identifier="build")
    request = SurveyModelRequest(source, 20.0, f"{file}:example" if example else None)
    found, _ = run(request, Context(folder))
    (tensor,), (output,) = found.contract.inputs, found.contract.outputs
    return found, tensor.dtype, output.dtype, "\n".join(found.notes)


@pytest.mark.parametrize("example", [None, "bfloat16", "float32"])
@pytest.mark.sampled(2)
def test_weights_in_bfloat16_are_drafted_in_float32(example, tmp_path):
    found, given, returned, notes = surveyed(tmp_path, "Net().bfloat16().eval()", example)
    assert (found.weights, given, returned) == ("float32", "float32", "float32")
    assert "first.weight, first.bias, norm.weight and 3 more in bfloat16" in notes
    source = Source("factory", path=str(tmp_path / "net.py"), identifier="build")
    widened = load_model(Source(**{**vars(source), "dtype": found.weights})).module
    for own, wide in zip(load_model(source).module.parameters(), widened.parameters(), strict=True):
        assert own.dtype == torch.bfloat16
        assert wide.dtype == torch.float32
        assert torch.equal(own.float(), wide)


@pytest.mark.parametrize("example", [None, "float16"])
def test_weights_in_float16_stay(example, tmp_path):
    found, given, returned, _ = surveyed(tmp_path, "Net().half().eval()", example)
    assert (found.weights, given, returned) == (None, "float16", "float16")
    assert found.computes_in == ("float16",)


@pytest.mark.thorough
def test_a_limit_of_float32_is_not_asked_of_weights_in_float16(tmp_path):
    """As a checkpoint of CLIP has them: the norm is in float32, and so is the output."""
    halves = "Mixed().eval()"
    found, given, returned, _ = surveyed(tmp_path, halves)
    assert (found.weights, given, returned) == (None, "float32", "float32")
    limits = tolerances_of(found)["output"]
    assert limits["max_abs"] >= 2 * 2**-10


@pytest.mark.thorough
def test_a_model_that_does_not_run_in_float16_is_drafted_in_float32(tmp_path):
    found, given, _, notes = surveyed(tmp_path, "Narrow().half().eval()")
    assert (found.weights, given) == ("float32", "float32")
    assert "torch does not run it in float16 on CPUs" in notes


@pytest.mark.thorough
def test_a_model_that_converts_to_bfloat16_itself_is_told_how_not_to(tmp_path):
    found, given, _, notes = surveyed(tmp_path, "Casting().bfloat16().eval()")
    assert (found.weights, given) == (None, "float32")
    assert "where forward converts to that type" in notes


@pytest.mark.parametrize(
    ("change", "name"), [("Net().double().eval()", "first.weight"), ("Buffered().eval()", "scale")]
)
def test_weights_in_float64_are_drafted_in_float32(change, name, tmp_path):
    found, given, returned, notes = surveyed(tmp_path, change)
    assert (found.weights, given, returned) == ("float32", "float32", "float32")
    assert name in notes
    assert "in float64" in notes


def test_a_constant_in_float64_is_named_with_its_line(tmp_path):
    found, _, returned, notes = surveyed(tmp_path, "Leaking().eval()")
    assert (found.weights, returned) == (None, "float64")
    line = CODE[: CODE.index("# HERE")].count("\n") + 1
    assert f"goes on in float64 at net.py:{line}." in notes


def test_a_number_of_numpy_s_leaves_the_type_as_it_is(tmp_path):
    _, _, returned, notes = surveyed(tmp_path, "Scaled().eval()")
    assert returned == "float32"
    assert "float64" not in notes


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))", "Dropout"),
        ("nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))", "BatchNorm1d"),
        ("Dropping()", "Dropping"),
        ("Dropping().eval()", None),
        ("nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.0))", None),
        ("Net()", None),
    ],
)
@pytest.mark.sampled(2)
def test_a_model_in_training_mode_is_drafted_in_eval_mode(change, kinds, tmp_path):
    _, _, _, notes = surveyed(tmp_path, change)
    assert ("comes in training mode" in notes) == (kinds is not None)
    assert kinds is None or f"the result of {kinds}" in notes
