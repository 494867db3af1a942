"""Originals that depend on denormal numbers, through the reference stage: N306."""

from pathlib import Path

import pytest
import torch
from small_graphs import HEADER, save, tensor

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import ReferenceRequest, Sample, Source
from convkit.worker.job_context import Context
from convkit.worker.process import denormal_mode
from convkit.worker.reference import denormal_finding
from convkit.worker.reference.original_model import OnnxOriginal, TorchOriginal
from convkit.worker.stages import reference

pytestmark = pytest.mark.skipif(
    denormal_mode._access() is None, reason="this system's mode cannot be set"
)

CONTRACT = Contract(
    (tensor("x", dtype="float32", shape=("batch", 16)),),
    (tensor("y", dtype="float32", shape=("batch", 16)),),
    (Axis("batch", 1, 2, 3),),
)
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)
        {setup}

    def forward(self, x):
        {body}

def build():
    {start}
    return Model()
"""
# An eps that only denormals can hold: rows of zeros become 0 / 1e-40, and 0 / 0 if it is flushed.
EPS = "quiet = torch.relu(x - 100.0)\n        return quiet / (quiet.sum(-1, keepdim=True) + 1e-40)"
# The energy of a quiet signal is 1e-40, and multiplied up again.
QUIET = "energy = (x * 1e-20) ** 2\n        return energy * 1e38 * 1e2"
# A softmax's tail, below 1e-38, as a log-odds ratio.
TAIL = (
    "p = torch.softmax(x * 0.01 - 92.0 * (torch.arange(16) > 7), -1)\n        return torch.log(p)"
)
WEIGHT = "return self.layer(x) + (2 + x.abs()) * self.small * 1e30 * 1e9"


def findings_of(
    folder: Path, body: str, setup: str = "", start: str = "pass", scale: float = 1.0
) -> list:
    text = MODEL.format(body=body, setup=setup or "pass", start=start)
    (folder / "model.py").write_text(text)
    source = Source("factory", path=str(folder / "model.py"), identifier="build")
    return run(folder, source, scale)


def run(folder: Path, source: Source, scale: float = 1.0) -> list:
    (folder / "reference").mkdir()
    samples = {"x": Sample("uniform", numbers=(-scale, scale))}
    request = ReferenceRequest(source, CONTRACT, samples, 0, (), None, ())
    _, findings = reference.run(request, Context(folder / "reference"))
    return [finding for finding in findings if finding.code == "N306"]


@pytest.mark.parametrize(
    ("body", "operator", "mended"),
    [(EPS, "div", True), (QUIET, "mul", None), (TAIL, "log", None)],
    ids=["eps", "quiet signal", "softmax tail"],
)
def test_a_dependence_is_found_with_its_line(
    tmp_path: Path, body: str, operator: str, mended: bool | None
) -> None:
    (finding,) = findings_of(tmp_path, body)
    assert (finding.severity, finding.evidence["operator"]) == ("warning", operator)
    assert finding.place.source.startswith("model.py:")
    assert finding.evidence["mended_by_larger_constants"] is mended
    assert ("Tried: " in finding.remedy.text) == bool(mended)
    assert ("Not tried" in finding.remedy.text) == (not mended)


def test_denormal_weights_are_tried_at_the_smallest_normal_number(tmp_path: Path) -> None:
    setup = "self.small = torch.nn.Parameter(torch.full((16,), 3e-40))"
    (finding,) = findings_of(tmp_path, WEIGHT, setup)
    assert finding.evidence["mended_by_larger_constants"] is True
    assert "the root module, at model.py:" in finding.message


ORDINARY = {
    "layers": "return self.norm(torch.nn.functional.gelu(self.layer(x)))",
    "sigmoid": "return torch.sigmoid(self.layer(x) * 100) + self.norm(x)",
    "masked softmax": "return torch.softmax(self.layer(x).masked_fill(x < 0, -1e9), -1)",
    "softmax with a tail": "return torch.softmax(x * 200, -1)",
    "exponentials": "return torch.exp(x * 95)",
    "log softmax": "return torch.log_softmax(x * 90, -1)",
    "an eps that is large enough": EPS.replace("1e-40", "1e-12"),
    "an lstm": "return torch.tanh(self.layer(x)) * torch.nn.functional.softplus(x * 90)",
}


@pytest.mark.parametrize("body", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_models_raise_no_alarm(tmp_path: Path, body: str) -> None:
    assert findings_of(tmp_path, body) == []


def test_a_model_that_meets_no_denormal_runs_no_further_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(TorchOriginal, "run_without_denormals", never)
    assert findings_of(tmp_path, ORDINARY["layers"]) == []


def test_slow_cases_do_not_run_again_beside_a_quick_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    known = TorchOriginal.run_without_denormals
    monkeypatch.setattr(
        TorchOriginal,
        "run_without_denormals",
        lambda self, feeds: runs.append(1) or known(self, feeds),
    )
    monkeypatch.setattr(denormal_finding, "_MOST_SECONDS", 0.0)
    assert findings_of(tmp_path, ORDINARY["exponentials"]) == []
    assert len(runs) == 1


def test_a_model_that_asks_for_flushing_is_run_without_it(tmp_path: Path) -> None:
    """One rule for all: the original keeps denormals, whatever its own code has set."""
    (finding,) = findings_of(tmp_path, EPS, start="torch.set_flush_denormal(True)")
    assert finding.evidence["operator"] == "div"
    assert float(torch.tensor([1e-39]) * 1.0) != 0


GRAPH = f"""{HEADER}g (float[batch, 16] x) => (float[batch, 16] y)
<float eps = {{EPS}}, float far = {{100.0}}> {{
    shifted = Sub (x, far)
    quiet = Relu (shifted)
    sum = ReduceSum <keepdims = 1> (quiet)
    safe = Add (sum, eps)
    y = Div (quiet, safe)
}}
"""


def test_an_onnx_file_names_its_node(tmp_path: Path) -> None:
    source = Source("onnx", path=str(save(tmp_path, GRAPH.replace("EPS", "1e-40"), carries=None)))
    (finding,) = run(tmp_path, source)
    assert (finding.place.node, finding.evidence["operator"]) == ("y", "Div")
    assert "Tried: " in finding.remedy.text


def test_an_onnx_file_with_a_larger_eps_raises_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(OnnxOriginal, "run_without_denormals")
    source = Source("onnx", path=str(save(tmp_path, GRAPH.replace("EPS", "1e-12"), carries=None)))
    assert run(tmp_path, source) == []
