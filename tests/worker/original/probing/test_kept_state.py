"""What a model keeps between calls is named if it matters, with the line that sets it."""

import sys
from types import ModuleType

import pytest
import torch

from convkit.worker.original.probing.held_state import State
from convkit.worker.original.probing.kept_state import state_finding

ONE, OTHER = [torch.ones(1, 3)], [torch.full((2, 5), 2.0)]


def asked(forward, tmp_path, monkeypatch, before=()):
    """Return what is found of a model whose forward has these lines, and the model."""
    body = "\n        ".join(forward)
    code = f"""
import dataclasses, types, torch
CALLS = 0
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.calls, self.config = None, 0, Config()
        self.register_buffer("mean", torch.zeros(1))
    def forward(self, x):
        {body}
@dataclasses.dataclass  # compared by value, and without a hash
class Config:
    length: int = 0
"""
    file = tmp_path / "kept_model.py"
    file.write_text(code)
    module = ModuleType("kept_model")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "kept_model", module)
    exec(compile(code, str(file), "exec"), vars(module))
    model = module.Model()
    loaded = State(model)
    for inputs in before:
        model(*inputs)
    return state_finding(model, loaded, ONE, OTHER, str(tmp_path)), model


WRONG = {
    "a length": ["if self.kept is None: self.kept = x.shape[1]", "return x / self.kept"],
    "a tensor": [
        "if self.kept is None: self.kept = torch.ones(9) * x.shape[1]",
        "return x + self.kept[: x.shape[1]]",
    ],
    "a counter": ["self.calls += 1", "return x * self.calls"],
    "a warm-up": ["self.calls += 1", "return x * (1 if self.calls < 1000 else 2)"],
    "a running mean": ["self.mean.mul_(0.9).add_(x.mean())", "return x - self.mean"],
    "a list": ["self.kept = (self.kept or []) + [x.shape[1]]", "return x * self.kept[0]"],
    "an object": [
        "self.config.length = self.config.length or len(x)",
        "return x * self.config.length",
    ],
    "a variable of the file": ["global CALLS", "CALLS = CALLS or x.shape[1]", "return x + CALLS"],
}


@pytest.mark.parametrize("forward", WRONG.values(), ids=WRONG)
def test_what_is_kept_and_matters_is_named_with_its_line(forward, tmp_path, monkeypatch):
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert (finding.code, finding.severity) == ("N303", "error")
    assert finding.evidence["change"] == "state"
    line = next(number for number, text in enumerate(forward) if "=" in text or "_(" in text)
    assert finding.place.source == f"kept_model.py:{10 + line}"


def test_a_model_that_has_run_for_other_questions_is_asked_as_it_was_loaded(tmp_path, monkeypatch):
    finding, _ = asked(WRONG["a length"], tmp_path, monkeypatch, before=[OTHER])
    assert finding is not None


RIGHT = {
    "nothing": ["return x + 1"],
    "a table that grows": [
        "if self.kept is None or len(self.kept) < x.shape[1]: self.kept = torch.arange(x.shape[1])",
        "return x + self.kept[: x.shape[1]]",
    ],
    "a counter that nothing reads": ["self.calls += 1", "return x + 1"],
    "the last result": ["self.kept = x * 2", "return self.kept"],
    "an object": ["self.config.length = x.shape[1]", "return x * self.config.length"],
    "a variable of the file": ["global CALLS", "CALLS += 1", "return x"],
}


@pytest.mark.parametrize("forward", RIGHT.values(), ids=RIGHT)
def test_what_changes_no_output_is_left_alone(forward, tmp_path, monkeypatch):
    finding, _ = asked(forward, tmp_path, monkeypatch)
    assert finding is None


def test_a_model_is_left_as_it_was_loaded(tmp_path, monkeypatch):
    _, model = asked(WRONG["a running mean"], tmp_path, monkeypatch)
    assert model.mean.tolist() == [0.0]
    _, model = asked(WRONG["a warm-up"], tmp_path, monkeypatch)
    assert model.calls == 0
