"""Programs on complex numbers as programs on their parts, compared with torch's own results."""

import warnings
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import pytest
import torch

from convkit.worker.exporters.decompositions.complex_pairs import has_complex, without_complex
from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.graph_rewriting import UnrewrittenError
from convkit.worker.exporters.decompositions.local_decompositions import decomposing_locally

Run = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class _Model(torch.nn.Module):
    """Computes with complex numbers made of its input, a weight and a buffer."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        self.register_buffer("turned", torch.randn(4, dtype=torch.complex64), persistent=False)
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.view_as_complex(x.reshape(-1, 4, 2)) * self.turned
        found = self.run(z, self.weight)
        return torch.view_as_real(found) if found.is_complex() else found


RUNS: dict[str, Run] = {
    "product": lambda z, w: z @ w,
    "quotient": lambda z, w: z / w[0] + 1 / (z + 3j),
    "sums": lambda z, w: z - w[1] * 2 + z.real - 0.5 + 1j,
    "real sides": lambda z, w: z.real - z + (z.abs() + w[0].real) * z / z.abs(),
    "conjugate": lambda z, w: z.conj() * w[0].conj(),
    "polar": lambda z, _: torch.polar(z.abs(), z.angle() * 2),
    "exponential": lambda z, _: (z * 0.3).exp() + (z + 4).log(),
    "powers": lambda z, _: z**3 + z.square(),
    "moves": lambda z, _: torch.cat([z, z.flip(1)], 1)[:, 1:].mT.mT.roll(1, 0),
    "choices": lambda z, w: torch.where(z.real > 0, z, w[0]).sum(1) + z.mean(1),
    "sequences": lambda z, w: torch.stack(z.split(2, 1)[0].unbind(1), -1) * w[0, :2],
    "created": lambda z, _: z * torch.ones(4, dtype=torch.complex64) + torch.zeros_like(z),
    "cast": lambda z, w: z.real.to(torch.complex64) * w[2] + z.imag.cumsum(0),
    "einsum": lambda z, w: torch.einsum("bi,ij,bj->b", z, w, z),
    "solution": lambda z, w: torch.linalg.solve(w, z.mT).mT,
    "solution of small numbers": lambda z, w: torch.linalg.solve(w * 1e-22, z.mT * 1e-22).mT,
    "inverse": lambda z, w: z @ torch.linalg.inv(w),
    "determinant": lambda z, w: torch.linalg.det(w * z.unsqueeze(1)),
    "factor": lambda z, w: (
        torch.linalg.solve_triangular(torch.linalg.cholesky(w @ w.mH), z.mT, upper=False).mT
    ),
    "transform": lambda z, w: torch.fft.ifft(torch.fft.fft(z, dim=-1) * w[0], dim=-1),
    "real transform": lambda z, w: torch.fft.irfft(torch.fft.rfft(z.real) * w[0, :3], n=4),
}


def _program(run: Run, x: torch.Tensor) -> torch.export.ExportedProgram:
    axes = {0: torch.export.Dim("batch", min=2, max=16)}
    with torch.no_grad():
        return torch.export.export(_Model(run), (x,), dynamic_shapes=(axes,), strict=False)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.sampled(6)
def test_matches_torch(name: str, tmp_path: Path) -> None:
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    program = _program(RUNS[name], x)
    assert has_complex(program)
    with decomposing_locally(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        real = without_complex(decomposed(program))
        exported = torch.onnx.export(real, dynamo=True, opset_version=18, verbose=False)
    assert exported is not None
    assert has_complex(real) == ("transform" in name)
    exported.save(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows in (3, 7):
        given = torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))
        (found,) = session.run(None, {session.get_inputs()[0].name: given.numpy()})
        with torch.no_grad():
            expected = _Model(RUNS[name])(given)
        assert torch.allclose(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.thorough
def test_an_operation_without_a_counterpart_is_named() -> None:
    program = _program(lambda z, _: torch.linalg.svdvals(z.T @ z), torch.randn(3, 8))
    with pytest.raises(UnrewrittenError, match="svd") as refused:
        without_complex(program)
    assert Path(__file__).name in refused.value.node.meta["stack_trace"]


@pytest.mark.parametrize("length", [12, 13])
@pytest.mark.parametrize("keeps_transforms", [True, False])
@pytest.mark.sampled(2)
def test_what_is_real_in_a_spectrum_has_torchs_angle(length: int, keeps_transforms: bool) -> None:
    class Phase(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.angle(torch.fft.rfft(x) + 0.1)

    x = torch.randn(6, 4, length, generator=torch.Generator().manual_seed(0))
    axes = ({0: torch.export.Dim("batch", min=1, max=9)},)
    program = torch.export.export(Phase(), (x[:3],), dynamic_shapes=axes)
    rewritten = without_complex(program, keeps_transforms=keeps_transforms)
    # Half of the means are negative: half a turn, of which the sign of a zero decides the side.
    for given in (-x.abs(), x):
        expected = Phase()(given)
        assert (expected[..., 0] > 3).any()
        torch.testing.assert_close(rewritten.module()(given), expected, atol=1e-4, rtol=0)
