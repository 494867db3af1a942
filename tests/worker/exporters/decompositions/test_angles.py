"""Angles from `atan` alone, compared with torch's `atan2` in every quadrant and on the axes."""

import itertools
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.functions.angles import angle

_NUMBERS = (0.0, -0.0, 1.5, -2.5, 1e-30, -3e20, torch.inf, -torch.inf, torch.nan)


class _Angle(nn.Module):
    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(y, x)


def _points() -> tuple[torch.Tensor, torch.Tensor]:
    y, x = torch.tensor(list(itertools.product(_NUMBERS, _NUMBERS))).unbind(1)
    return y.contiguous(), x.contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_matches_torch(dtype: torch.dtype) -> None:
    y, x = (each.to(dtype) for each in _points())
    found, expected = angle(y, x), torch.atan2(y, x)
    assert found.dtype == expected.dtype
    step = torch.finfo(dtype).eps
    assert torch.allclose(found, expected, rtol=step, atol=2 * step, equal_nan=True)


def test_shapes_that_broadcast_and_integers() -> None:
    y, x = torch.tensor([[-1], [0], [2]]), torch.tensor([3, 0, -1, -4])
    found, expected = angle(y, x), torch.atan2(y, x)
    assert found.dtype == expected.dtype
    assert torch.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("mended", [True, False], ids=["decomposed", "torch's own"])
@pytest.mark.sampled(1)
def test_the_exported_graph(tmp_path: Path, mended: bool) -> None:
    y, x = _points()
    program = torch.export.export(_Angle(), (y, x), strict=False)
    program = decomposed(program) if mended else program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        exported = torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False)
    assert exported is not None
    exported.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    feeds = {each.name: v.numpy() for each, v in zip(session.get_inputs(), (y, x), strict=True)}
    (found,) = session.run(None, feeds)
    expected = torch.atan2(y, x).numpy()
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6, equal_nan=True) is mended
