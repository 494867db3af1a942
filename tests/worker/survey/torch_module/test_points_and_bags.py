"""Inputs that no layer's width describes: points beside their neighbors, bags of embeddings."""

import pytest
from tiny_models import factory_source

from convkit.protocol.messages import SurveyResult
from convkit.worker.original.loading import load_model
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.sizes import work_clock
from convkit.worker.survey.sizes.work_clock import WorkClock

# A layer of DGCNN: each point beside its differences from its nearest neighbors.
NEIGHBORS = """
class Edges(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = LAYER

    def forward(self, x):
        points = TRANSPOSED
        far = (points.unsqueeze(1) - points.unsqueeze(2)).square().sum(-1)
        near = far.topk(4, largest=False).indices
        rows = torch.arange(points.shape[0]).view(-1, 1, 1)
        edges = points[rows, near] - points.unsqueeze(2)
        both = torch.cat([edges, points.unsqueeze(2).expand_as(edges)], -1)
        return JOINED

def build():
    return Edges()
"""
FIRST = {
    "LAYER": "torch.nn.Conv2d(6, 8, 1)",
    "TRANSPOSED": "x.transpose(1, 2)",
    "JOINED": "self.layer(both.permute(0, 3, 1, 2)).amax(-1)",
}
LAST = {"LAYER": "torch.nn.Linear(10, 8)", "TRANSPOSED": "x", "JOINED": "self.layer(both).amax(2)"}
BAGS = """
class Bags(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(50, 6, mode="mean")
        self.out = torch.nn.Linear(6, 3)

    def forward(self, clicks, offsets):
        return self.out(self.bag(clicks, offsets))

def build():
    return Bags()
"""


def surveyed(folder, code: str) -> SurveyResult:
    return survey_module(load_model(factory_source(folder, code)), 60, lambda _: None)


@pytest.mark.parametrize(
    ("words", "shape"),
    [(FIRST, ("batch", 3, "points")), (LAST, ("batch", "points", 5))],
    ids=["first", "last"],
)
def test_the_width_of_points_is_solved_for(tmp_path, words, shape):
    code = NEIGHBORS
    for word, text in words.items():
        code = code.replace(word, text)
    found = surveyed(tmp_path, code)
    (spec,) = found.contract.inputs
    assert spec.shape == shape
    (points,) = (axis for axis in found.contract.axes if axis.name == "points")
    assert points.min == 4  # as many as there are neighbors
    assert found.exporter is None


def test_a_cloud_of_points_has_a_batch(tmp_path):
    """One cloud runs, too: its maximum over points is then one over features."""
    code = NEIGHBORS[: NEIGHBORS.index("    def forward")].replace("LAYER", "torch.nn.Linear(3, 8)")
    code += """
    def forward(self, points):
        each = self.layer(points)
        return each - each.amax(1, keepdim=True)

def build():
    return Edges()
"""
    (spec,) = surveyed(tmp_path, code).contract.inputs
    assert spec.shape == ("batch", "points", 3)


@pytest.mark.thorough
def test_offsets_begin_at_zero_and_stay_below_the_elements(tmp_path):
    found = surveyed(tmp_path, BAGS)
    shapes = {spec.name: spec.shape for spec in found.contract.inputs}
    assert shapes == {"clicks": ("entries",), "offsets": ("batch",)}
    assert found.samples["offsets"].kind == "offsets"
    assert found.samples["offsets"].along == "entries"
    assert {axis.name for axis in found.contract.axes} == {"entries", "batch"}


def test_work_is_counted_and_waiting_for_other_processes_is_not(monkeypatch):
    worked, passed = 0.0, 0.0
    monkeypatch.setattr(work_clock.time, "thread_time", lambda: worked)
    monkeypatch.setattr(work_clock.time, "monotonic", lambda: passed)
    clock = WorkClock()
    worked, passed = 2.0, 2.0
    assert clock() == pytest.approx(2)
    passed = 5.0  # another process has the processor
    assert clock() == pytest.approx(3)
    worked, passed = 3.0, 6.0
    assert clock() == pytest.approx(4)
