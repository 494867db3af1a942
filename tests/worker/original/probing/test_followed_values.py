"""The values at which a torch model decides, found by following its inputs."""

import numpy as np
import pytest
import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.cases.decision_values import turning_values
from convkit.worker.original.probing.torch_comparisons import find_decisions

CONTRACT = Contract((TensorSpec("x", "float32", (2, 8)),), (), ())


class Module(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self._forward = forward
        self.step = torch.nn.Parameter(torch.tensor(0.05))
        self.limits = torch.nn.Parameter(torch.linspace(0.25, 2.0, 8))
        self.register_buffer("edges", torch.tensor([-1.5, 0.3, 2.7]))
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self._forward(self, x)


def turns(forward, dtype="float32"):
    """Return the values below which and from which a model decides otherwise, by operation."""
    decisions, _ = find_decisions(
        Module(forward), lambda _: (torch.randn(2, 8, dtype=getattr(torch, dtype)),), CONTRACT, {}
    )
    found = {}
    for each in decisions.values:
        assert each.tensor == "x"
        assert "test_followed_values.py" in each.place
        found.setdefault(each.operation, []).extend(
            turning_values(each, -8.0, 8.0, np.dtype(dtype))
        )
    return found


def near(found, *wanted):
    values = np.unique([value for turn in found for value in turn])
    return all(np.abs(values - each).min() < 2e-6 for each in wanted)


@pytest.mark.parametrize(
    ("forward", "operation", "wanted"),
    [
        (lambda _, x: (x // 0.1).long().clamp(0, 63), "floordiv", (0.1, 0.7, -0.3)),
        (lambda self, x: torch.floor(x / self.step), "floor", (0.05, 0.15)),
        (lambda _, x: torch.round(x[:, None] * 4 + 1), "round", (0.125, -0.625)),
        (lambda _, x: x.abs().log1p().mul(2).to(torch.int32), "to", (np.expm1(0.5), np.expm1(2))),
        (lambda _, x: torch.div(x, 0.3, rounding_mode="trunc"), "div", (0.3, -0.6)),
        (lambda _, x: x % 0.25, "remainder", (0.25, -1.0)),
        (lambda _, x: torch.fmod(x, 0.5), "fmod", (0.5, -1.5)),
        (lambda self, x: torch.bucketize(x, self.edges), "bucketize", (-1.5, 0.3, 2.7)),
        (lambda self, x: torch.searchsorted(self.edges, x + 1), "searchsorted", (-2.5, 1.7)),
        (lambda _, x: torch.where(x.tanh().ge(0.5), x, -x), "ge", (np.arctanh(0.5),)),
        (lambda self, x: torch.where(torch.gt(x, self.limits), x, -x), "gt", (0.25, 2.0)),
        (lambda _, x: torch.sign(x - 3), "sign", (3.0,)),
    ],
)
def test_values_at_which_a_model_decides(forward, operation, wanted):
    found = turns(forward)
    assert near(found[operation], *wanted), found


def test_both_sides_are_neighbors_in_the_inputs_type():
    for dtype in ("float32", "float64", "float16"):
        (turn,) = turns(lambda _, x: (x > 0.3).float(), dtype)["gt"]
        kind = np.dtype(dtype).type
        _, below, above, _ = map(kind, turn)
        assert np.nextafter(below, kind(1)) == above
        assert above > kind(0.3) >= below


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: torch.floor(self.linear(x)),
        lambda _, x: torch.floor(x + x.roll(1)),
        lambda _, x: torch.floor(x.softmax(-1)),
        lambda _, x: x.clamp(-1, 1) * torch.arange(8).remainder(3),
        lambda _, x: x.relu().sqrt(),
    ],
)
def test_what_depends_on_several_elements_or_does_not_jump_has_no_such_values(forward):
    assert turns(forward) == {}


def test_operations_in_place_are_made_again_on_copies():
    def forward(_, x):
        y = x.clone()
        y.mul_(10).add_(5)
        return y.floor_()

    assert near(turns(forward)["floor"], 0.1, -0.2)
