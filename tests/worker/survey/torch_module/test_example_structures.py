"""Examples as people hand them over: arguments in order and by name, and structures of tensors."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.messages import SurveyModelRequest
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.stages.survey_model import run
from convkit.worker.survey.torch_module.example_run import example_run
from convkit.worker.survey.torch_module.example_structure import example_call
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


class Levels(torch.nn.Module):
    def forward(self, levels):
        return {"sum": levels[0] + levels[1], "parts": {"first": levels[0] * 2}}


class Batch(torch.nn.Module):
    def forward(self, batch, scale=1.0):
        return batch["image"].mean((1, 2, 3)) * scale + batch["text"]["ids"].sum(1)


class State(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor


@dataclasses.dataclass
class Seen:
    place: torch.Tensor
    goal: torch.Tensor | None = None


class Policy(torch.nn.Module):
    def forward(self, seen: Seen, state: State):
        h, c = state
        return seen.place + h, State(h, c * 2)


class Bare(torch.nn.Module):
    """Says nothing of what its state is."""

    def forward(self, x, state):
        return x + state.h * state.c


class Unpacked(torch.nn.Module):
    def forward(self, x, state):
        h, c = state
        return x + h * c


class Masked(torch.nn.Module):
    def forward(self, x, *, mask=None, twice=False):
        return x.masked_fill(mask, 0) * (2 if twice else 1)


ROWS = torch.ones(2, 3)
IMAGE = torch.ones(2, 3, 4, 4)
MASK = ROWS > 2
PAIR = {"image": IMAGE, "text": {"ids": ROWS}}


def loaded(module: torch.nn.Module) -> LoadedModel:
    return LoadedModel(module.eval(), "a module")


@pytest.mark.parametrize(
    ("module", "example", "paths"),
    [
        (Levels(), [ROWS, ROWS], ["levels.0", "levels.1"]),
        (Levels(), ((ROWS, ROWS),), ["levels.0", "levels.1"]),
        (Levels(), {"levels": [ROWS, ROWS]}, ["levels.0", "levels.1"]),
        (Batch(), PAIR, ["batch.image", "batch.text.ids"]),
        (Batch(), (PAIR, 1.0), ["batch.image", "batch.text.ids"]),
        (Batch(), (PAIR, {}), ["batch.image", "batch.text.ids"]),
        (Levels(), ([ROWS, ROWS], {}), ["levels.0", "levels.1"]),
        (Policy(), (Seen(ROWS), State(ROWS, ROWS)), ["seen.place", "state.h", "state.c"]),
        (Masked(), (ROWS, {"mask": MASK}), ["x", "mask"]),
        (Masked(), ([ROWS], {"mask": MASK, "twice": False}), ["x", "mask"]),
        (Bare(), (ROWS, State(ROWS, ROWS)), ["x", "state.h", "state.c"]),
        (Unpacked(), (ROWS, [ROWS, ROWS]), ["x", "state.0", "state.1"]),
    ],
)
def test_a_call_is_read_as_it_is_handed_over(module, example, paths):
    call = example_call(loaded(module), example)
    assert list(call.paths.values()) == paths
    assert [name.replace("_", ".") for name in call.tensors] == paths


@pytest.mark.parametrize(
    ("module", "example", "says"),
    [
        (Levels(), [ROWS, "text"], "'levels.1' is 'text'; inputs are tensors"),
        (Levels(), [ROWS, {1, 2}], "'levels.1' is a set"),
        (Batch(), {"pixels": IMAGE}, "forward has no 'pixels'; it takes batch, scale"),
        (Batch(), {"a key": ROWS}, "has the key 'a key'"),
        (Masked(), (ROWS, {"mask": MASK, "twice": True}), "'twice' is True"),
        (Unpacked(), (ROWS, State(ROWS, ROWS)), "Say in forward what it is: `state: State`"),
        (Levels(), 3, "it returned a int"),
    ],
)
def test_what_no_recipe_can_fill_is_named(module, example, says):
    with pytest.raises(StageFailedError) as caught:
        example_call(loaded(module), example)
    assert says in str(caught.value)


def test_trials_fill_structures_and_name_what_is_inside_of_outputs():
    trials = ModuleTrials(loaded(Levels()), 20.0)
    start = example_run(loaded(Levels()), [ROWS, ROWS], trials)
    assert [(each.name, each.origin) for each in start.inputs] == [
        ("levels_0", "levels.0"),
        ("levels_1", "levels.1"),
    ]
    assert [(each.name, each.origin) for each in trials.outputs] == [
        ("sum", None),
        ("parts_first", "parts.first"),
    ]
    values = trials.values({"levels_0": np.ones((1, 3)), "levels_1": np.full((1, 3), 4.0)})
    assert values is not None
    assert values["sum"].tolist() == [[5.0] * 3]
    assert trials.uses({"levels_0": np.ones((1, 3)), "levels_1": np.ones((1, 3))}).roles == {}


STRUCTURED = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(6, 2)

    def forward(self, parts):
        x = torch.cat([parts["left"], parts["right"]], -1)
        return self.head(x), {"joined": x}

def build():
    return Net()

def example():
    return {"left": torch.rand(2, 4), "right": torch.rand(2, 2)}
"""


def test_a_draft_of_structures_is_traced_whole(tmp_path):
    source = factory_source(tmp_path, STRUCTURED)
    request = SurveyModelRequest(source, 60.0, example=f"{tmp_path / 'factory.py'}:example")
    found, _ = run(request, Context(tmp_path))
    shapes = {
        spec.name: (spec.origin, spec.shape)
        for spec in (*found.contract.inputs, *found.contract.outputs)
    }
    assert shapes == {
        "parts_left": ("parts.left", ("batch", 4)),
        "parts_right": ("parts.right", ("batch", 2)),
        "output_0": ("0", ("batch", 2)),
        "output_1_joined": ("1.joined", ("batch", 6)),
    }
    assert found.notes == ()
    with np.load(tmp_path / "example.npz") as file:
        assert file["parts_right"].shape == (2, 2)


class Fields(torch.nn.Module):
    """Categories of three fields in one table, each from its own row on."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(3 + 60 + 7, 4)
        self.first = torch.nn.Buffer(torch.tensor([0, 3, 63]))

    def forward(self, fields):
        return self.table(fields + self.first).sum(1)


def test_columns_with_ranges_of_their_own_are_drawn_from_what_all_of_them_take():
    trials = ModuleTrials(loaded(Fields()), 20.0)
    start = example_run(loaded(Fields()), torch.tensor([[2, 59, 1], [0, 8, 6]]), trials)
    assert start.samples["fields"].numbers == (0.0, 3.0)
    (note,) = start.notes
    assert "ranges of their own: numbers below 3" in note
