"""Non-finite elements are counted, and a sum that overflows is not taken for one."""

import math

import pytest
import torch

from convkit.worker.mil.evaluation_trace import Counts, count_nonfinite

LOW = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("dtype", LOW)
def test_finite_elements_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    largest = torch.full((3, 100), torch.finfo(dtype).max, dtype=dtype)
    assert not torch.isfinite(largest.sum()), "or this test shows nothing"
    for value in (largest, -largest, largest.t(), largest[:, ::2], largest[:, :1] * 0):
        assert count_nonfinite(value) is None


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    ("bad", "counts"),
    [
        ([math.nan], Counts(1, 0, 0)),
        ([math.inf], Counts(0, 1, 0)),
        ([-math.inf, math.inf], Counts(0, 2, 0)),
        ([math.inf, math.nan, math.nan], Counts(2, 1, 0)),
    ],
)
def test_every_element_that_is_not_finite_is_counted(
    dtype: torch.dtype, bad: list[float], counts: Counts
) -> None:
    value = torch.full((5, 7), torch.finfo(dtype).max, dtype=dtype)
    value.view(-1)[3 : 3 + len(bad)] = torch.tensor(bad, dtype=dtype)
    assert count_nonfinite(value) == counts
    assert count_nonfinite(value.t()) == counts
    value.zero_().view(-1)[-len(bad) :] = torch.tensor(bad, dtype=dtype)
    assert count_nonfinite(value) == counts


def test_what_rounding_made_infinite_is_told_from_what_was() -> None:
    computed = torch.tensor([1.0, 65519.0, 65520.0, -7e4, math.inf])
    assert count_nonfinite(computed.half(), computed) == Counts(0, 3, 2)


@pytest.mark.parametrize("value", [torch.empty(0, 3), torch.tensor(2.0), torch.tensor([1, 2])])
def test_no_elements_a_scalar_and_whole_numbers_are_finite(value: torch.Tensor) -> None:
    assert count_nonfinite(value) is None
