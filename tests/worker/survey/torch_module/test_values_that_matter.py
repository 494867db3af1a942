"""Models that run with an example's values, and not with numbers drawn from the same ranges."""

from pathlib import Path

import pytest
import torch

from convkit.worker.cases import example_case
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.module_survey import survey_module


class Boxes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(1000, 4)

    def forward(self, box):
        return self.table(box[:, 1] - box[:, 0])  # a box ends after it begins


class Edges(torch.nn.Module):
    def forward(self, x, edges, speed):
        assert bool((edges[0] < edges[1]).all()), "edges go forwards"
        return x.index_add(0, edges[1], x[edges[0]]) * speed


BOXES = torch.tensor([[10, 300]] * 40)
EDGES = (torch.randn(5, 3), torch.tensor([[0, 0, 1, 2], [1, 3, 2, 4]]), torch.rand(3))


def surveyed(module, example, folder):
    loaded = LoadedModel(module.eval(), "a module")
    return survey_module(loaded, 60, lambda _: None, example, folder=folder)


def test_they_are_drawn_from_the_example(tmp_path):
    found = surveyed(Boxes(), BOXES, tmp_path)
    assert found.samples["box"].kind == "file"
    assert found.samples["box"].path == str(tmp_path / "example.npz")
    assert any("the example's own values of 'box'" in note for note in found.notes)
    assert found.contract.axes, "the example's values are repeated to other sizes"


def test_inputs_that_may_have_others_are_drawn(tmp_path):
    found = surveyed(Edges(), EDGES, tmp_path)
    kinds = {name: sample.kind for name, sample in found.samples.items()}
    assert kinds["edges"] == "file"
    assert "file" not in (kinds["x"], kinds["speed"])


@pytest.mark.parametrize("is_large", [True, False])
def test_what_cannot_be_kept_is_refused(is_large, tmp_path, monkeypatch):
    monkeypatch.setattr(example_case, "MOST_EXAMPLE_BYTES", 40)
    with pytest.raises(StageFailedError, match="runs with it, but not with numbers drawn"):
        surveyed(Boxes(), BOXES, tmp_path if is_large else None)


def test_points_that_are_in_one_place_at_the_ends_leave_out_that_case(tmp_path: Path) -> None:
    class Repulsion(torch.nn.Module):
        """Of each pair of points: of seventeen at the corners of a cube, two are in one."""

        def forward(self, points: torch.Tensor) -> torch.Tensor:
            apart = points.unsqueeze(0) - points.unsqueeze(1)
            distance = apart.square().sum(-1)[torch.triu_indices(17, 17, 1).unbind(0)].sqrt()
            return (distance / distance).sum()

    loaded = LoadedModel(Repulsion().eval(), "")
    points = torch.rand(17, 3, generator=torch.Generator().manual_seed(0))
    found = survey_module(loaded, 60.0, lambda _: None, (points,), folder=tmp_path)
    assert found.skip == ("extreme",)
    (note,) = [each for each in found.notes if "extreme" in each]
    assert note.startswith("the model returns NaN for inputs whose values are all at the ends")
