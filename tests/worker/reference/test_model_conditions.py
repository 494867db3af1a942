"""Comparisons inside an original: legal inputs for the side that usual values never take."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from tiny_models import factory_source

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Sample
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.decision_sizes import Decisions
from convkit.worker.reference.original_decisions import known_decisions, one_sided_findings
from convkit.worker.reference.original_model import TorchOriginal

CODE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.l = torch.nn.Linear(12, 6)

    def forward(self, x):
        y = self.l(x)
        {body}

def build():
    return Net().eval()
"""
LINE = "factory.py:13"
CONTRACT = Contract(
    (TensorSpec("x", "float32", ("n", 12)),),
    (TensorSpec("y", "float32", ("n", 6)),),
    (Axis("n", 1, 2, 4),),
)
SAMPLES = {"x": Sample("uniform", (-3.0, 3.0))}


def decided(tmp_path: Path, body: str, graph: str | None = None) -> tuple[Decisions, TorchOriginal]:
    original = TorchOriginal(factory_source(tmp_path, CODE.format(body=body)), CONTRACT)
    made_from = CaseInputs(CONTRACT, SAMPLES, 0, original.facts)
    return known_decisions(original, made_from, graph), original


# Each needs nearly every element of a row at an end of the range of its own: no draw has that.
@pytest.mark.parametrize(
    "body",
    [
        "return torch.where(y > 4.2, y * 2, y)",
        "return y.masked_fill((y - 20 < -24.2) & (x[:, :1] > -9), 0.0)",
        "return torch.where(y.norm(dim=-1, keepdim=True) > 7, y * 2, y)",
        "return y.tanh() if y.max() < 4.2 else y",
    ],
)
def test_inputs_for_the_other_side_are_found(tmp_path: Path, body: str) -> None:
    found, original = decided(tmp_path, body)
    (branch,) = found.branches
    assert (branch.place, found.conditions, found.untried) == (LINE, (), ())
    assert np.abs(branch.inputs["x"]).max() <= 3
    usual = {"x": np.zeros((2, 12), np.float32)}
    with original.conditions() as conditions:
        sides = [conditions.sides(each) for each in (usual, branch.inputs)]
    assert any(sides[0][site] != sides[1][site] for site in sides[0])


def test_what_no_input_reaches_is_said_unless_a_case_does(tmp_path: Path) -> None:
    found, original = decided(tmp_path, "return torch.where(y > 1e4, y * 0, y)")
    usual = {"x": np.zeros((2, 12), np.float32)}

    def said(*calls: dict[str, np.ndarray]) -> list[Finding]:
        return [*one_sided_findings(found, original, None, CONTRACT, lambda: calls)]

    (finding,) = said(usual)
    assert (finding.code, finding.severity, finding.place.source) == ("N515", "note", LINE)
    reached = {"x": np.full((2, 12), 1e7, np.float32)}
    assert not said(usual, reached, {"x": -reached["x"]})


@pytest.mark.parametrize(
    "body", ["return torch.where(y > 1e4, y, y)", "return torch.where(y > 0, y, y * 0.1)"]
)
def test_sides_that_change_nothing_or_were_taken_need_no_search(tmp_path: Path, body: str) -> None:
    found, _ = decided(tmp_path, body)
    assert (found.branches, found.conditions) == ((), ())


SIGNS = ", ".join(["1", "-1"] * 6)


@pytest.mark.parametrize(
    ("nodes", "is_found"),
    [
        ("c = Greater(m, most)  y = Where(c, one, x)", True),
        ("l = Clip(m, , most)  y = Mul(x, l)", True),
        ("c = Greater(m, far)  y = Where(c, one, x)", False),
    ],
)
def test_comparisons_of_a_file_are_tried_too(tmp_path: Path, nodes: str, *, is_found: bool) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> file (float[n, 12] x) => (float[n, 12] y)
    <float most = {{1.7}}, float far = {{100}}, float one = {{1}}, float[12] w = {{{SIGNS}}}>
    {{ s = Mul(x, w)  m = ReduceMean(s)  {nodes} }}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "file.onnx")
    graph = str(tmp_path / "file.onnx")
    found, original = decided(tmp_path, "return y", graph)
    usual = {"x": np.zeros((2, 12), np.float32)}
    said = [*one_sided_findings(found, original, graph, CONTRACT, lambda: [usual])]
    assert (bool(found.branches), bool(said)) == (is_found, not is_found)
    if is_found:
        x = found.branches[-1].inputs["x"]
        assert float((x[:, ::2] - x[:, 1::2]).mean()) / 2 > 1.7
    else:
        assert "(never true)" in said[0].message


def test_comparisons_of_sizes_are_found_whatever_computes_them(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]> file (float[n, 12] x) => (float[n, 12] y)
    <float most = {30}, float one = {1}> {
        s = Shape(x)  ones = ConstantOfShape<value = float[1] {1}>(s)  count = ReduceSum(ones)
        c = Greater(count, most)  y = Where(c, one, x)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "file.onnx")
    found, _ = decided(tmp_path, "return y", str(tmp_path / "file.onnx"))
    (decision,) = found.sizes
    assert [decision.holds({"n": size}) for size in (1, 2, 3, 4)] == [False, False, True, True]
