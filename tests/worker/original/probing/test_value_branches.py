"""Which inputs make a model's branches on values turn out otherwise, and what finding out costs."""

import torch

from convkit.worker.original.probing.value_branches import flipping_inputs


class Layered(torch.nn.Module):
    """Branches on its input, then runs two costly layers, and refuses large values at the end."""

    def __init__(self, later_branch: bool = False) -> None:
        super().__init__()
        self.later_branch = later_branch
        self.layers = 0

    def forward(self, x):
        if (x > 0).all():
            x = x + 1
        for _ in range(2):
            self.layers += 1
            x = torch.sin(x)
        if self.later_branch and (x > 5).any():
            x = x - 5
        if self.layers and x.shape[0] > 3:
            raise ValueError("too many rows")
        return x


def place_of_each_flip(module, *others):
    found = flipping_inputs(module, [torch.ones(2)], [[each] for each in others], None)
    return list(found.values())


def test_inputs_on_the_same_side_are_run_up_to_the_last_branch_only():
    module = Layered()
    assert place_of_each_flip(module, torch.ones(2), torch.ones(3)) == []
    assert module.layers == 2  # the first inputs' alone
    module = Layered(later_branch=True)
    assert place_of_each_flip(module, torch.ones(2), torch.ones(3)) == []
    assert module.layers == 6


def test_the_first_inputs_on_the_other_side_are_found():
    assert place_of_each_flip(Layered(), torch.ones(2), -torch.ones(2), -torch.ones(3)) == [1]


def test_inputs_that_the_model_refuses_after_its_branches_are_left_out():
    assert place_of_each_flip(Layered(), -torch.ones(4)) == []
    assert place_of_each_flip(Layered(), -torch.ones(4), -torch.ones(2)) == [1]


def test_a_model_that_catches_everything_runs_to_its_end():
    class Catching(Layered):
        def forward(self, x):
            try:
                return super().forward(x)
            except BaseException:  # noqa: BLE001 - as some models do
                return x

    assert place_of_each_flip(Catching(), torch.ones(2), -torch.ones(2)) == [1]
