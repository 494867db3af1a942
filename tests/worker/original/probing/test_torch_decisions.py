"""What running a torch model shows of the sizes and values that it decides by."""

from pathlib import Path

import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.cases.decision_sizes import turns
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.torch_comparisons import find_decisions, run_inverted

BASE = {"batch": 3, "sequence": 7}
CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "sequence", 4)),),
    (),
    (Axis("batch", 1, 4, 8), Axis("sequence", 2, 16, 64)),
)


def look(forward):
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(4, 4, batch_first=True)

        def forward(self, x):
            return forward(self, x)

    def draw(sizes):
        return (torch.randn(sizes["batch"], sizes["sequence"], 4),)

    return find_decisions(Module(), draw, CONTRACT, BASE)


def sides(decisions):
    return {
        (turn.axis, turn.below[turn.axis])
        for decision in decisions.sizes
        for turn in turns(decision, CONTRACT, BASE)
    }


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda _, x: x if x.shape[1] > 12 else -x, {("sequence", 12)}),
        (lambda _, x: x if x.size(1) <= 12 else -x, {("sequence", 12)}),
        (lambda _, x: x if x.size()[1] > 12 else -x, {("sequence", 12)}),
        (lambda _, x: x if x.shape[1] // 4 - 1 >= 3 else -x, {("sequence", 15)}),
        (lambda _, x: x[:, : min(x.shape[1], 20)], {("sequence", 20)}),
        (lambda _, x: x if x.shape[0] * x.shape[1] > 100 else -x, {("sequence", 33)}),
        (lambda _, x: x if x.shape[1] == x.shape[0] else -x, {("batch", 6), ("batch", 7),
                                                              ("sequence", 2), ("sequence", 3)}),
        (lambda _, x: x.view(x.shape[0], x.shape[1] * 4), set()),
        (lambda self, x: self.rnn(x)[0], set()),
        (lambda _, x: torch.nn.functional.softmax(x, 1), set()),
    ],
)  # fmt: skip
def test_comparisons_of_sizes(forward, expected):
    decisions, _ = look(forward)
    assert sides(decisions) == expected


def test_what_only_one_side_shows_is_found_by_running_both():
    def forward(_, x):
        if x.shape[1] > 12:
            return x if x.shape[0] > 5 else -x
        return x * 2

    assert sides(look(forward)[0]) == {("sequence", 12), ("batch", 5)}


@pytest.mark.parametrize(
    ("forward", "value", "exact"),
    [
        (lambda _, x: torch.where(x > 5, x, -x), 5.0, True),
        (lambda _, x: torch.where(x.transpose(1, 2)[:, 0] < -2.5, 1.0, 2.0), -2.5, True),
        (lambda _, x: x.clamp(max=3.0), 3.0, True),
        (lambda _, x: (x * 2 - 1).gt(9).float(), 5.0, False),
        (lambda _, x: x.long().eq(2).float(), 2.0, True),
    ],
)
def test_comparisons_of_values(forward, value, exact):
    decisions, _ = look(forward)
    assert {(each.tensor, each.value, each.exact) for each in decisions.thresholds} == {
        ("x", value, exact)
    }


def test_values_that_are_no_longer_the_inputs_are_not_followed():
    decisions, _ = look(lambda _, x: torch.where(torch.tanh(x) > 0.5, x, -x))
    assert decisions.thresholds == ()


def test_sizes_that_become_numbers_are_told_with_their_line():
    def forward(_, x):
        n = int(x.shape[1])
        return x.reshape(-1, n, 4) * float(n)

    _, lines = look(forward)
    (line,) = lines
    assert line.rpartition(":")[0].endswith("test_torch_decisions.py")
    assert line.endswith(f":{forward.__code__.co_firstlineno + 1}")
    assert lines[line] == {"sequence"}


def test_a_model_that_raises_tells_what_it_came_to():
    def forward(_, x):
        if x.shape[1] > 12:
            raise ValueError("too long")
        raise TypeError("broken")

    assert sides(look(forward)[0]) == {("sequence", 12)}


def test_the_module_gives_the_same_as_before():
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.randn(3, 7, 4)
    before = module(x, x, x)[0]

    class Attention(torch.nn.Module):
        def forward(self, x):
            self.found = module(x, x, x)[0]
            return self.found

    attention = Attention()
    find_decisions(attention, lambda _: (x,), CONTRACT, BASE)
    assert torch.equal(attention.found, before)


class Force(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 4:
            x = 2 * x
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(x.pow(3).sum(), x)
        return slope


def test_a_model_that_computes_gradients_runs_on_the_other_side_of_a_comparison() -> None:
    contract = Contract(
        (TensorSpec("x", "float32", ("batch",)),),
        (TensorSpec("y", "float32", ("batch",)),),
        (Axis("batch", 1, 2, 8),),
    )
    module = ContractModule(LoadedModel(Force().eval(), ""), contract)
    x = torch.ones(2)
    usual, places = run_inverted(module, {"x": x}, {"batch": 2}, str(Path(__file__).parent))
    (place,) = places
    other, _ = run_inverted(
        module, {"x": x}, {"batch": 2}, str(Path(__file__).parent), inverted=place
    )
    assert [each.tolist() for each in (*usual, *other)] == [[3.0, 3.0], [12.0, 12.0]]
