"""Values of its inputs that a model's Python reads: which inputs show that they matter, and which
lines none shows.
"""

import numpy as np
import pytest
import torch

from convkit.worker.original.probing.values_read import lines_read, parting_inputs, untried_lines

X = [torch.linspace(-1, 1, 12).reshape(2, 6)]
OTHERS = [[torch.zeros(2, 6)], [X[0] * 3], [X[0] + 2]]


class Model(torch.nn.Module):
    def __init__(self, compute):
        super().__init__()
        self.compute = compute
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.compute(self, x)


READ = {
    "a branch": lambda _, x: x * 2 if x.mean() > 1 else x,
    "a number": lambda _, x: x / (1 + float(x.abs().max())),
    "a whole number": lambda _, x: x * int(x.abs().max()),
    "an element": lambda _, x: x + 1 if x[0, 0].item() > 0.5 else x,
    "an array": lambda _, x: x * float(x.detach().numpy().std()),
    "a list": lambda _, x: x + max(x[0].tolist()),
    "a comparison of all": lambda _, x: x + 1 if torch.equal(x, x * 0) else x,
}


@pytest.mark.parametrize("compute", READ.values(), ids=READ)
def test_inputs_for_which_a_trace_computes_something_else_are_found(compute):
    model = Model(compute)
    (line,) = lines_read(model, X, None)
    assert line.startswith(__file__.rpartition("/")[2]) or "test_values_read.py" in line
    assert list(parting_inputs(model, X, OTHERS, None)) == [line]


UNTRIED = {
    "a branch": lambda _, x: x * 2 if x.mean() > 100 else x,
    "an element": lambda _, x: x + 1 if float(x[0, 0]) > 50 else x,
    "a whole number": lambda _, x: x * (1 + int(x.abs().max()) // 100),
    "a difference": lambda _, x: x + 1 if x[0, 0] > x[0, 1] + 20 else x,
    "an exact value": lambda _, x: x + 1 if (x == 0.125).any() else x,
}


@pytest.mark.parametrize("compute", UNTRIED.values(), ids=UNTRIED)
def test_a_value_that_would_matter_and_that_no_input_changes_is_untried(compute):
    model = Model(compute)
    assert parting_inputs(model, X, OTHERS, None) == {}
    assert untried_lines(model, X, [], None) == list(lines_read(model, X, None))


def checked(_, x):
    if torch.isnan(x).any():
        raise ValueError("NaN")
    return x * 2


FINE = {
    "nothing": lambda _, x: x * 2,
    "where": lambda _, x: torch.where(x.mean() > 100, x * 2, x),
    "a check": checked,
    "a shortcut": lambda _, x: x if (x > -100).all() else torch.where(x > -100, x, x),
    "a guard against NaN": lambda _, x: torch.nan_to_num(x) + 1 if x.isnan().any() else x,
    "a guard against infinity": lambda _, x: x if torch.isfinite(x).all() else torch.zeros_like(x),
    "a weight's value": lambda m, x: x * m.scale.item(),
    "a size": lambda _, x: x * int(x.shape[1]) if x.shape[0] > 1 else x,
    "a printed value": lambda _, x: (str(x.mean().item()), x)[1],
}


@pytest.mark.parametrize("compute", FINE.values(), ids=FINE)
def test_what_does_not_matter_is_left_alone(compute):
    assert untried_lines(Model(compute), X, [], None) == []
    assert parting_inputs(Model(compute), X, OTHERS, None) == {}


def test_lines_that_are_tried_are_not_asked_about():
    model = Model(UNTRIED["a branch"])
    (line,) = lines_read(model, X, None)
    assert untried_lines(model, X, [line], None) == []


def test_an_array_keeps_its_type_when_altered():
    seen = []

    def compute(_, x):
        values = x.detach().numpy()
        seen.append(values.dtype)
        return x + torch.from_numpy(values[:, :1] > 100)

    untried_lines(Model(compute), X, [], None)
    assert set(seen) == {np.dtype("float32")}
