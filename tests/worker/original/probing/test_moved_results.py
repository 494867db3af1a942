"""Results that are moved as rounding moves them."""

import torch

from convkit.worker.original.unsteady_mode import moved


def test_parts_of_a_complex_number_are_moved_by_units_of_the_whole() -> None:
    product = torch.complex(torch.tensor([4.0, -2.0]), torch.tensor([0.0, 0.0]))
    found = moved(product.conj(), (1, -1))
    torch.testing.assert_close(found.real, torch.tensor([4.0, -2.0]))
    assert found.imag.abs().tolist() == [4 * 2.0**-23, 2 * 2.0**-23]
