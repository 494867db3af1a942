"""Code that says what a wrong kernel should compute."""

import numpy as np
import onnx
import pytest
import torch

from convkit.worker.cause.place.other_wording import other_wording

RESIZE = onnx.helper.make_node("Resize", ["x"], ["y"])


@pytest.mark.parametrize(("mode", "sizes"), [("nearest", (64, 10)), ("nearest-exact", (7, 9))])
def test_a_nearest_resize_is_written_as_indexing(mode: str, sizes: tuple[int, int]) -> None:
    given = torch.randn(1, 2, 26, 5)
    expected = torch.nn.functional.interpolate(given, sizes, mode=mode)
    code = other_wording(RESIZE, given.numpy(), expected.numpy())
    assert code is not None
    names = {"x": given, "torch": torch}
    exec(code, names)
    assert torch.equal(names["x"], expected)


def test_a_resize_that_computes_new_values_has_none() -> None:
    given = torch.randn(1, 2, 6)
    expected = torch.nn.functional.interpolate(given, 9, mode="linear")
    assert other_wording(RESIZE, given.numpy(), expected.numpy()) is None
    other = onnx.helper.make_node("Relu", ["x"], ["y"])
    assert other_wording(other, given.numpy(), np.repeat(given.numpy(), 2, 2)) is None
