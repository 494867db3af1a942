"""Operators without a translation are written out by the table, and onnxruntime computes them as
torch does.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.local_decompositions import decomposing_locally

Outputs = tuple[torch.Tensor, ...]
Function = Callable[[torch.Tensor, torch.Tensor], Outputs]


class _Called(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> Outputs:
        return self.function(x, numbers)


def _factors(x: torch.Tensor, _: torch.Tensor) -> Outputs:
    x = x[:, :2, :3]
    square = x[..., :2]
    packed, scales = torch.geqrf(x)
    return (
        *torch.linalg.lu(x),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(square), x),
        packed,
        torch.ormqr(packed, scales, x),
        torch.cholesky(square @ square.mT + torch.eye(2)),
    )


def _placed(x: torch.Tensor, numbers: torch.Tensor) -> Outputs:
    return (
        torch.nonzero_static(numbers, size=9),
        x.as_strided_scatter(numbers.reshape(-1)[:4].reshape(2, 2).float(), (2, 2), (5, 1), 3),
        torch.bucketize(0.5, x[0, 0].sort().values),
        torch.searchsorted(x[0, 0].sort().values, 0.5),
    )


def _of_floats(x: torch.Tensor, _: torch.Tensor) -> Outputs:
    return (
        x.copysign(-0.0),
        torch.hypot(x, x.mT.reshape(x.shape)),
        *torch.frexp(x),
        torch.special.bessel_j0(x),
        torch.special.modified_bessel_k1(x.exp()),
        torch.special.zeta(2.5, x.exp()),
        torch.special.hermite_polynomial_he(x, 3),
        torch.special.legendre_polynomial_p(x, 4),
    )


def _of_whole_numbers(_: torch.Tensor, numbers: torch.Tensor) -> Outputs:
    return (
        torch.lgamma(numbers + 5),
        torch.polygamma(1, numbers.abs() + 1),
        torch.special.i0e(numbers),
        torch.special.bessel_j1(numbers),
        torch.special.ndtri(numbers > 0),
        torch.special.log_ndtr(numbers),
        torch.copysign(numbers, -1.5),
        torch.special.chebyshev_polynomial_t(numbers, 3),
    )


def _whole(x: torch.Tensor, numbers: torch.Tensor) -> Outputs:
    return (
        *(numbers.floor(), numbers.ceil(), numbers.round(), numbers.trunc()),
        *(numbers.isnan(), numbers.isinf(), numbers.isfinite(), (numbers > 0).isnan()),
        *(numbers.angle(), (numbers > 0).angle(), (numbers > 0).square(), numbers.square()),
        *(x.floor(), x.isnan(), x.square()),  # as they are
    )


def _windows(x: torch.Tensor, _: torch.Tensor) -> Outputs:
    return (
        x[0, 0] * torch.hamming_window(5),
        x[0, 0] * torch.blackman_window(5, periodic=False),
        x[0, 0] * torch.kaiser_window(5, periodic=True, beta=6.0),
        x[0, 0] * torch.bartlett_window(5),
    )


FUNCTIONS: dict[str, Function] = {
    "factors": _factors,
    "placed values": _placed,
    "functions of floats": _of_floats,
    "functions of whole numbers": _of_whole_numbers,
    "whole numbers and bools": _whole,
    "windows": _windows,
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(1)
def test_onnxruntime_computes_it_as_torch(name: str, tmp_path: Path) -> None:
    module = _Called(FUNCTIONS[name])
    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(1))
    numbers = torch.tensor([[3, 0, -2], [1, 0, 4]])
    program = torch.export.export(module, (x, numbers), strict=False)
    with decomposing_locally(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        exported = torch.onnx.export(
            decomposed(program), dynamo=True, opset_version=18, verbose=False
        )
    assert exported is not None
    exported.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    given = {"x": x.numpy(), "numbers": numbers.numpy()}
    found = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
    expected = module(x, numbers)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.from_numpy(one), other, rtol=1e-4, atol=1e-5, equal_nan=True
        )
