"""Which calls of a program are decomposed, and what torch's exporter makes of the rest."""

import warnings
from pathlib import Path

import onnx_ir
import onnxruntime
import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.local_decompositions import decomposing_locally


class _Pooled(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)


class _Solved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix = x @ x.mT + torch.eye(4)
        return torch.linalg.solve(matrix, x[..., :1]) * torch.linalg.inv(matrix).median(-1, True)[0]


class _Logarithms(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.binary_cross_entropy_with_logits(x, x.sigmoid(), reduction="none")
        both = torch.logaddexp(x, 2 * x) + torch.logaddexp2(x, 2 * x)
        return torch.cat([nn.functional.logsigmoid(x), both, loss, x.sigmoid().cumprod(3)])


def _program(
    module: nn.Module, x: torch.Tensor, *, is_open: bool = False
) -> torch.export.ExportedProgram:
    axes = dict.fromkeys((2, 3), torch.export.Dim.DYNAMIC) if is_open else {}
    return torch.export.export(module, (x,), dynamic_shapes=(axes,), strict=False)


def _exported(
    program: torch.export.ExportedProgram, folder: Path
) -> tuple[int, onnxruntime.InferenceSession]:
    with decomposing_locally(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        exported = torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False)
    assert exported is not None
    exported.save(folder / "model.onnx")
    return len(exported.model.graph), onnxruntime.InferenceSession(folder / "model.onnx")


def test_uneven_windows_become_a_few_operators(tmp_path: Path) -> None:
    x = torch.rand(2, 3, 37, 23)
    program = _program(_Pooled(7), x)
    nodes, session = _exported(decomposed(program), tmp_path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(found), _Pooled(7)(x), atol=1e-6)
    assert nodes < 10


@pytest.mark.thorough
def test_open_axes(tmp_path: Path) -> None:
    program = _program(_Pooled(5), torch.rand(2, 3, 12, 9), is_open=True)
    _, session = _exported(decomposed(program), tmp_path)
    for height, width in ((12, 9), (31, 5), (10, 10), (3, 44)):
        x = torch.rand(2, 3, height, width)
        (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert torch.allclose(torch.from_numpy(found), _Pooled(5)(x), atol=1e-6)


@pytest.mark.thorough
def test_matrices_and_medians(tmp_path: Path) -> None:
    x = torch.randn(3, 4, 4)
    _, session = _exported(decomposed(_program(_Solved(), x)), tmp_path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(found), _Solved()(x), atol=1e-4)


@pytest.mark.thorough
def test_logarithms_of_sums_far_from_zero_stay_finite(tmp_path: Path) -> None:
    x = torch.tensor([-1e4, -90.0, -20.0, 0.0, 20.0, 90.0, 1e4]).expand(1, 1, 2, 7)
    _, session = _exported(decomposed(_program(_Logarithms(), x)), tmp_path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), _Logarithms()(x))


@pytest.mark.parametrize(
    ("module", "x"),
    [(_Pooled(4), torch.rand(1, 2, 8, 12)), (nn.Linear(3, 3), torch.rand(2, 3))],
    ids=["windows alike", "no such operator"],
)
def test_other_programs_stay_as_they_are(module: nn.Module, x: torch.Tensor) -> None:
    program = _program(module, x)
    assert decomposed(program) is program


def test_large_matrices_stay_whole() -> None:
    class Large(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(x)

    program = _program(Large(), torch.eye(40))
    assert decomposed(program) is program


class _Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x.sort(dim=1, stable=True).indices
        return torch.stack([first, x.argsort(dim=1, stable=True, descending=True)])


@pytest.mark.thorough
def test_a_stable_sort_keeps_the_order_of_equals(tmp_path: Path) -> None:
    x = torch.randint(0, 4, (2, 40, 3)).float()
    program = torch.export.export(_Sorted(), (x,), strict=False)
    _, session = _exported(decomposed(program), tmp_path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.equal(torch.from_numpy(found), _Sorted()(x))


class _Stacked(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.hstack([torch.zeros(4, 2), x])
        return torch.vstack([rows[0], rows])


@pytest.mark.thorough
def test_several_tensors_become_no_sequence(tmp_path: Path) -> None:
    x = torch.rand(4, 3)
    _, session = _exported(decomposed(_program(_Stacked(), x)), tmp_path)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.equal(torch.from_numpy(found), _Stacked()(x))
    operators = [node.op_type for node in onnx_ir.load(tmp_path / "model.onnx").graph]
    assert not [name for name in operators if "Sequence" in name]
