import inspect

import pytest
import torch

from convkit.worker.original.loading.gathered_arguments import gather_rest, gathered
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.torch_module.example_structure import example_call


class Streaming(torch.nn.Module):
    def forward(self, x, gain=2.0, *states, shift=0.5, **others):
        return x * gain + shift + others.get("more", 0.0), *(state + x for state in states)


class Positional(torch.nn.Module):
    def forward(self, *parts):
        return torch.cat(parts, -1)


class Named(torch.nn.Module):
    def forward(self, x):
        return x


def test_the_rest_becomes_a_list_that_is_bound_by_name():
    model, plain = Streaming(), Streaming()
    gather_rest(model)
    assert gathered(model) == "states"
    assert list(inspect.signature(model.forward).parameters) == [
        "x", "gain", "states", "shift", "others",
    ]  # fmt: skip
    x, states = torch.ones(2), [torch.arange(2.0), torch.zeros(2)]
    found = model(x=x, states=states, shift=1.0, more=3.0)
    for one, other in zip(found, plain(x, 2.0, *states, shift=1.0, more=3.0), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(model(x=x)[0], plain(x)[0])


def test_a_model_without_such_arguments_stays_as_it_is():
    model = Named()
    gather_rest(model)
    assert gathered(model) is None
    assert "forward" not in vars(model)


def test_it_is_done_once():
    model = Positional()
    gather_rest(model)
    first = model.forward
    gather_rest(model)
    assert model.forward is first


@pytest.mark.parametrize(
    ("model", "example", "paths"),
    [
        (
            Streaming(),
            (torch.ones(2), torch.tensor(2.0), torch.zeros(2), torch.zeros(2)),
            {"x": "x", "gain": "gain", "states_0": "states.0", "states_1": "states.1"},
        ),
        (
            Positional(),
            (torch.ones(2), torch.ones(3)),
            {"parts_0": "parts.0", "parts_1": "parts.1"},
        ),
        (Streaming(), (torch.ones(2), torch.tensor(2.0)), {"x": "x", "gain": "gain"}),
    ],
)
def test_an_example_in_order_reaches_them(model, example, paths):
    gather_rest(model)
    assert example_call(LoadedModel(model, "a test"), example).paths == paths
