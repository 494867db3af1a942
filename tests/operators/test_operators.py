"""The sweep of torch's samples: its samples are torch's calls, and its judge can fail."""

import numpy as np
import pytest
import torch

from operators.__main__ import results
from operators.conversions import RUNTIMES, Unconverted, differs
from operators.samples import samples

EXPECTED = {"y0": torch.tensor([[1.0, torch.inf], [torch.nan, 2.0]])}


def _given(found: object) -> str:
    return differs(lambda _: {"y0": np.array(found, np.float32)}, {}, EXPECTED)


def test_only_the_same_numbers_in_the_same_shape_pass() -> None:
    assert _given([[1.00001, np.inf], [np.nan, 2]]) == ""
    assert _given([[1.0, np.inf], [np.nan, 2.01]]) == "y0: 1 of 4, at [1, 1] 2.01 for 2"
    assert _given([[1.0, np.inf], [0, 2]]) == "y0: 1 of 4, at [1, 0] 0 for nan"
    assert _given([[1.0, -np.inf], [np.nan, np.nan]]) == "y0: 2 of 4, at [0, 1] -inf for inf"
    assert _given([1.0, np.inf, np.nan, 2]) == "y0 is [4] in place of [2, 2]"


def test_what_a_runtime_refuses_is_no_difference() -> None:
    def refuse(_: object) -> dict[str, np.ndarray]:
        raise RuntimeError("no kernel")

    with pytest.raises(Unconverted, match="no kernel"):
        differs(refuse, {}, EXPECTED)


def test_an_operator_is_right_at_fixed_and_at_open_sizes() -> None:
    chosen = list(samples(lambda name: name == "roll"))
    assert {len(each.runs) for each in chosen} == {1, 2}
    for sample in chosen[:2]:
        assert list(results(sample, RUNTIMES)) == [(each, "right", "") for each in RUNTIMES]


def test_samples_are_what_torch_computes() -> None:
    for sample in samples(lambda name: name in ("fft.rfft", "cumsum")):
        for inputs, expected in sample.runs:
            with torch.no_grad():
                found = sample.module(*inputs.values())
            for given, right in zip(found, expected.values(), strict=True):
                torch.testing.assert_close(given, right)
