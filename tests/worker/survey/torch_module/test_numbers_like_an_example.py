"""Numbers are drawn as an example has them, and sizes beyond which nothing is read are fixed."""

import pytest
import torch

from convkit.protocol.messages import Sample
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.module_survey import survey_module


class Sum(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)


class Noise(torch.nn.Module):
    """Reads two columns of any number of them; without `also`, which may be longer."""

    def __init__(self, also: bool):
        super().__init__()
        self.also = also

    def forward(self, raw, noise):
        level = torch.sqrt(noise[:, :1] * raw.clamp_min(0) + noise[:, 1:2].square())
        return level + noise.mean(1, keepdim=True) if self.also else level


def surveyed(module, example):
    return survey_module(LoadedModel(module.eval(), "a module"), 60, lambda _: None, example)


NORMAL = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
USUAL = Sample("normal", (0.0, 1.0))


@pytest.mark.parametrize(
    ("example", "sample"),
    [
        (NORMAL, USUAL),
        (NORMAL[:1] * 1e4, USUAL),  # five numbers say little of their deviation
        (NORMAL.clamp(0, 1), Sample("uniform", (0.0, 1.0))),
        (-NORMAL.clamp(0.5, 1), Sample("uniform", (-1.0, -0.5))),
        (torch.full((1,), 7.5), Sample("uniform", (3.75, 15.0))),
        (torch.zeros(3, 5), USUAL),
        (torch.tensor([[0.25, float("nan"), 0.5]]), Sample("uniform", (0.25, 0.5))),
    ],
)
def test_numbers_are_drawn_as_the_examples(example, sample):
    (found,) = surveyed(Sum(), example).samples.values()
    assert found == sample


UNITS = torch.tensor([0.01, 1.0, 3e6, 0.0]) * torch.rand(
    6, 4, generator=torch.Generator().manual_seed(0)
)


class Headed(torch.nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.head = torch.nn.Linear(columns, 2)

    def forward(self, x):
        return self.head(x)


def test_columns_in_units_of_their_own_have_ranges_of_their_own():
    (found,) = surveyed(Headed(4), UNITS).samples.values()
    assert found.kind == "columns"
    ends = torch.tensor(found.numbers).reshape(-1, 2)
    assert torch.allclose(ends[:, 0], UNITS.amin(0), rtol=0.01)
    assert torch.allclose(ends[:, 1], UNITS.amax(0), rtol=0.01)


@pytest.mark.parametrize(
    ("module", "example"),
    [
        (Headed(4), NORMAL[:, :4].abs()),  # in the same units
        (Headed(4), UNITS[:2]),  # too few rows
        (Headed(4), torch.zeros(5, 4)),
        (Sum(), UNITS),  # what lies along an axis that may vary
    ],
)
def test_other_columns_share_a_range(module, example):
    (found,) = surveyed(module, example).samples.values()
    assert found.kind in ("uniform", "normal")


class Quotes(torch.nn.Module):
    """Says NaN where there is no quote; without `guarded`, computes it."""

    def __init__(self, guarded: bool) -> None:
        super().__init__()
        self.guarded = guarded

    def forward(self, bid):
        if self.guarded:
            return bid.clamp_min(0.1).log().masked_fill(bid <= 0, float("nan"))
        return bid.log()


def test_nan_that_the_example_s_call_writes_is_as_good_as_a_number():
    example = torch.tensor([[100.0, -1.0, 3.0], [5.0, 7.0, float("nan")]])
    (found,) = surveyed(Quotes(True), example).samples.values()
    assert found.kind in ("normal", "uniform")
    drawn = surveyed(Quotes(False), example[:, :1]).samples["bid"]
    assert drawn.numbers[0] > 0, "what is computed keeps off NaN"


@pytest.mark.parametrize(
    ("times", "ends"),
    [
        ([1767627000, 1800000000], (1767627000, 1800000001)),
        ([2000000000] * 2, (1998000000, 2002000001)),
    ],
)
def test_times_are_drawn_near_the_example_s(times, ends):
    class Day(torch.nn.Module):
        def forward(self, now):
            return (now % 86400).float() / 86400

    (found,) = surveyed(Day(), torch.tensor(times)).samples.values()
    assert found == Sample("integers", tuple(map(float, ends)))


def test_numbers_far_from_the_usual_keep_their_scale():
    (found,) = surveyed(Sum(), 3000 + 500 * NORMAL - 2800 * (NORMAL > 1)).samples.values()
    assert found.kind == "uniform"
    (found,) = surveyed(Sum(), 500 * NORMAL).samples.values()
    assert found.kind == "normal"
    assert found.numbers[1] == pytest.approx(500, rel=0.1)


@pytest.mark.parametrize("also", [False, True])
def test_an_axis_beyond_whose_size_nothing_is_read_is_fixed(also):
    example = (torch.rand(3, 4), torch.rand(3, 2) * 0.1)
    found = surveyed(Noise(also), example)
    shapes = {spec.name: spec.shape for spec in found.contract.inputs}
    assert (shapes["noise"][1] == 2) is not also
    assert isinstance(shapes["raw"][1], str), "what is read stays open"


def test_rows_of_length_one_keep_their_scale():
    rows = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    (found,) = surveyed(Sum(), torch.nn.functional.normalize(rows)).samples.values()
    assert found.kind == "normal"
    assert found.numbers[1] == pytest.approx(0.125, rel=0.1)
    (found,) = surveyed(Sum(), rows * 0.6).samples.values()
    assert found == USUAL
