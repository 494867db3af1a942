import pytest
import torch

from convkit.worker.original.settled_branches import TakenSides, settled_sides


class Experts(torch.nn.Module):
    """Each row goes to one of two layers."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x):
        out = torch.zeros_like(x)
        for number, layer in enumerate(self.layers):
            mask = (x[:, 0] > 0) == bool(number)
            if mask.any():
                out[mask] = layer(x[mask])
        return out


class Cleaned(torch.nn.Module):
    def forward(self, x):
        if torch.isnan(x).any():
            x = torch.nan_to_num(x)
        return x * 2


class Skipped(torch.nn.Module):
    """The other side is the one that always works: nothing is left to clip below it."""

    def forward(self, x):
        if (x.abs() <= 3).all():
            return x
        return x.clamp(-3, 3)


class Deciding(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class Refusing(torch.nn.Module):
    def forward(self, x):
        if (x > 1e9).any():
            raise ValueError("too large")
        return x


@pytest.mark.parametrize(
    ("model", "sides"),
    [
        (Experts(), [True]),
        (Cleaned(), [True]),
        (Skipped(), [False]),
        (Deciding(), []),
        (Refusing(), []),
    ],
)
def test_the_side_that_computes_what_both_do_is_found(model, sides):
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
    found = settled_sides(model, [(x,), (x[:1],)], None)
    assert list(found.values()) == sides
    for each in (x, -x, 5 * x, x[:1]):
        expected = model(each)
        with TakenSides(None, found):
            assert torch.equal(model(each), expected)


def test_a_decision_that_no_input_turns_proves_nothing():
    class Positive(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.square().sum() >= 0 else x

    assert settled_sides(Positive(), [(torch.ones(3, 2),)], None) == {}


def test_the_original_is_not_run_under_the_mode_afterwards():
    x = torch.ones(3, 2)
    settled_sides(Deciding(), [(x,)], None)
    assert torch.equal(Deciding()(-x), -x)
