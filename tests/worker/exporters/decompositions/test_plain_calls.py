"""Calls that torch's exporter does not take, or takes wrong, as others that it takes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from exporting_modules import export_graph
from torch.nn import functional
from torch.nn.utils import rnn

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel

attention = functional.scaled_dot_product_attention
CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "the largest of all": lambda x: x.amax() + x.amin(),
    "both ends of all": lambda x: torch.stack(x.aminmax()),
    "attention without heads": lambda x: attention(x[0], x[1], x[0]),
    "attention without a batch": lambda x: attention(x[0, 0], x[0, 1], x[1, 0], is_causal=True),
    "attention to what all heads read": lambda x: attention(
        x, x[0], x[1], torch.ones(5, 5, dtype=torch.bool).tril()
    ),
    "statistics of the batch": lambda x: functional.batch_norm(
        x, None, None, x[0, :, 0, 0], x[0, :, 1, 1], training=True, eps=0.1
    ),
    "statistics of the batch beside the trained ones": lambda x: functional.batch_norm(
        x, x[0, :, 2, 2].clone(), x[0, :, 3, 3].abs(), None, None, training=True, eps=0.1
    ),
    "rows as often as is said": lambda x: torch.repeat_interleave(
        x, (x[0, :, 0, 0] > 0).long() + torch.tensor([1, 2, 1]), 1, output_size=6
    ),
    "the logarithm of a determinant": lambda x: torch.logdet(x[..., :3, :3] @ x[..., :3, :3].mT),
    "sequences padded to the longest": lambda x: torch.cat(
        [
            rnn.pad_sequence([x[0, 0], x[1, 0, :2]], batch_first=True, padding_value=0.5),
            rnn.pad_sequence([x[0, 0, :1], x[1, 0]], padding_side="left").transpose(0, 1),
        ]
    ),
    "an index for the leading rows": lambda x: x.gather(2, (x[:1, :2, :4] > 0).long() + 1),
    "shifts by tensors": lambda x: torch.stack(
        [(x * 99).long() >> (x > 0).long(), (x * 99).long() << (x > 0).long()]
    ),
    "shifts of short numbers": lambda x: torch.cat(
        [
            ((x * 99).to(torch.int16) >> 2).long(),
            ((x * 99).abs().to(torch.uint8) << 1).long(),
            ((x * 99).abs().to(torch.uint8) >> (x > 0).to(torch.uint8)).long(),
        ]
    ),
    "a packed batch that is unpacked": lambda x: torch.cat(
        rnn.pad_packed_sequence(
            rnn.pack_padded_sequence(x[0], (x[0, :, 0, 0] > 9).long() + 5, batch_first=True),
            batch_first=True,
        )[:1]
    ),
    "a sum of products": lambda x: torch.addbmm(x[0, 0], x[0], x[1], beta=0.5, alpha=2),
}


class Called(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CALLS[self.name](x)


@pytest.mark.parametrize("name", CALLS)
def test_onnxruntime_computes_them(name: str, tmp_path: Path) -> None:
    module = Called(name).eval()
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(7))
    x[0, :, 0, 0] = torch.tensor([1.0, -1.0, 1.0])
    expected = module(x)
    sizes = tuple(map(str, x.shape))
    contract = Contract(
        (TensorSpec("x", "float32", sizes),),
        (TensorSpec("y", "float32", tuple(map(str, expected.shape))),),
        (),
    )
    behind = ContractModule(LoadedModel(module, "a test's"), contract)
    session = onnxruntime.InferenceSession(export_graph(behind, (x,), tmp_path))
    (found,) = session.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


class Paired(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return rnn.pad_sequence([x, y, x[:1]], batch_first=True).sum(1)


def test_whichever_sequence_is_the_longest(tmp_path: Path) -> None:
    contract = Contract(
        (TensorSpec("x", "float32", ("n", 3)), TensorSpec("y", "float32", ("m", 3))),
        (TensorSpec("z", "float32", (3, 3)),),
        (Axis("n", 1, 4, 9), Axis("m", 1, 6, 9)),
    )
    inputs = torch.randn(4, 3), torch.randn(6, 3)
    module = Paired().eval()
    behind = ContractModule(LoadedModel(module, "a test's"), contract)
    session = onnxruntime.InferenceSession(export_graph(behind, inputs, tmp_path))
    for sizes in ((4, 6), (9, 2), (1, 1)):
        x, y = (torch.randn(size, 3) for size in sizes)
        (found,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        np.testing.assert_allclose(found, module(x, y).numpy(), rtol=1e-5, atol=1e-6)


class Repeated(torch.nn.Module):
    """Each row as often as another input has columns."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        repeated = x.repeat_interleave(y.shape[1], self.dim)
        return repeated.flatten()[:: y.shape[1]].cumsum(0)[-1] + repeated


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_rows_are_repeated_as_often_as_an_open_axis_is_long(
    dim: int | None, tmp_path: Path
) -> None:
    """torch's exporter repeats along the first axis: as many rows as repeats are right there."""
    module = Repeated(dim).eval()
    shapes = {0: ("n * m", 3), 1: ("n", "3 * m"), -1: ("n", "3 * m"), None: ("3 * n * m",)}
    contract = Contract(
        (TensorSpec("x", "float32", ("n", 3)), TensorSpec("y", "float32", ("n", "m"))),
        (TensorSpec("z", "float32", shapes[dim]),),
        (Axis("n", 1, 4, 9), Axis("m", 1, 6, 9)),
    )
    behind = ContractModule(LoadedModel(module, "a test's"), contract)
    graph = export_graph(behind, (torch.randn(4, 3), torch.randn(4, 6)), tmp_path)
    session = onnxruntime.InferenceSession(graph)
    for rows, columns in ((4, 6), (3, 3), (5, 2), (1, 7), (2, 1)):
        x, y = torch.randn(rows, 3), torch.randn(rows, columns)
        (found,) = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        np.testing.assert_allclose(found, module(x, y).numpy(), rtol=1e-4, atol=1e-4)
