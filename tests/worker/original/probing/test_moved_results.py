"""Results that are moved as rounding moves them."""

import pytest
import torch

from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.unsteady_mode import moved, reads_numbers_alone
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


def test_parts_of_a_complex_number_are_moved_by_units_of_the_whole() -> None:
    product = torch.complex(torch.tensor([4.0, -2.0]), torch.tensor([0.0, 0.0]))
    found = moved(product.conj(), (1, -1))
    torch.testing.assert_close(found.real, torch.tensor([4.0, -2.0]))
    assert found.imag.abs().tolist() == [4 * 2.0**-23, 2 * 2.0**-23]


class Balance(torch.nn.Module):
    """The difference of two sums that are equal but for rounding."""

    def __init__(self, *, of_table: bool) -> None:
        super().__init__()
        self.offset = torch.nn.Parameter(torch.zeros(1))
        self.table = torch.nn.Embedding(2000, 1) if of_table else None

    def forward(self, counts: torch.Tensor) -> torch.Tensor:
        x = counts.float() if self.table is None else self.table(counts).squeeze(-1)
        one, other = torch.stack([x.sum(-1), x.flip(-1).sum(-1)])
        return one - other + self.offset


@pytest.mark.parametrize("of_table", [False, True])
def test_results_are_moved_where_whole_numbers_are_all_that_goes_in(*, of_table: bool) -> None:
    module = Balance(of_table=of_table).eval()
    counts = torch.arange(1000, 1100).reshape(1, 100)
    assert reads_numbers_alone(module, [counts]) is not of_table
    assert not reads_numbers_alone(module, [counts.float()])
    trials = ModuleTrials(LoadedModel(module, ""), 60.0)
    found = trials.values_nearby({"counts": counts.numpy()}, "typical")
    assert found is not None
    (moved_by,) = found["output"].ravel().tolist()
    assert (abs(moved_by) > 0.01) is not of_table
