"""Operators that coremltools 9.0 refuses, or gets wrong, for arguments that torch's users write."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn
from torch.nn import functional

from convkit.runtimes.coreml.conversion.traced_program import simplified
from convkit.worker.job_context import StageFailedError


class Applied(nn.Module):
    """A function, with an optional layer."""

    def __init__(self, function: Callable[..., torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.layers)


def called(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    return layer(x)


def tracked() -> nn.Module:
    layer = nn.InstanceNorm2d(4, affine=True, track_running_stats=True).requires_grad_(False)
    layer.running_mean.copy_(torch.arange(4.0))
    layer.running_var.copy_(torch.arange(1.0, 5.0))
    return layer.eval()


OPERATORS: dict[str, nn.Module] = {
    "the maximum of an open axis": Applied(
        lambda x: functional.adaptive_max_pool1d(x[:, 0].transpose(0, 2), 1)
    ),
    "a cubic grid": Applied(
        lambda x: functional.grid_sample(
            x, x.mean(1)[..., :2].unsqueeze(1) * 2, "bicubic", align_corners=False
        )
    ),
    "a grid of a volume": Applied(
        lambda x: functional.grid_sample(
            x.unsqueeze(1), x[..., None, :3], "bilinear", "border", align_corners=True
        )
    ),
    "resizing that leaves a part of a pixel": Applied(
        lambda x: functional.interpolate(x, scale_factor=1.3, mode="bilinear")
    ),
    "a constant over a convolution": Applied(
        lambda x, layer: torch.arange(1.0, 3.0)[:, None, None] / layer(x + 40), nn.Conv2d(4, 2, 3)
    ),
    "a convolution over a constant": Applied(lambda x, layer: layer(x) / 3.0, nn.Conv2d(4, 2, 3)),
    "a layer norm with computed factors": Applied(
        lambda x: functional.layer_norm(x, (6,), x[0, 0, 0] + 1, x[0, 1, 0] * 2)
    ),
    "values between tensors": Applied(lambda x: x.clamp(x.mean() - 0.1, x.abs() * 0.3)),
    "the spread of all values": Applied(lambda x: x[:, 0, 0] * x[0].var(False) + x[1].std(True)),
    "statistics of the batch": Applied(
        lambda x: functional.batch_norm(x, None, None, training=True, eps=0.1)[..., 0]
    ),
    "a sum of products": Applied(
        lambda x: torch.addbmm(x[0, 0, :6], x[:, 0, :6], x[:, 1, :6], beta=0.5) + x[:, 0, :1]
    ),
    "rolled elements": Applied(lambda x: x[:, 0, 0].T.roll(2).T),
    "the diagonal of a product": Applied(lambda x: (x[:, 0, 0] @ x[:, 0, 0].T).diagonal()),
    "the nearest pixels of a part": Applied(lambda x: functional.interpolate(x, scale_factor=1.7)),
    "max_pool2d without a stride": Applied(lambda x: functional.max_pool2d(x, 2)),
    "max_pool1d without a stride": Applied(lambda x: functional.max_pool1d(x[:, 0], 3)),
    "max_pool2d with a stride": Applied(lambda x: functional.max_pool2d(x, 3, 2, 1)),
    "rms_norm": Applied(called, nn.RMSNorm(6, eps=1e-2)),
    "rms_norm without an epsilon": Applied(called, nn.RMSNorm(6, elementwise_affine=False)),
    "cosine_similarity": Applied(lambda x: functional.cosine_similarity(x, x.flip(1), dim=-1)),
    "circular padding": Applied(
        called, nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular").requires_grad_(False)
    ),
    "reciprocal": Applied(lambda x: torch.reciprocal(x.abs() + 0.01)),
    "reciprocal of a constant": Applied(lambda x: x * torch.reciprocal(torch.arange(1.0, 7))),
    "rsqrt of a tiny number": Applied(lambda x: torch.rsqrt(x * x * 1e-10 + 1e-12) * 1e-6),
    "tracked statistics": Applied(called, tracked()),
    "distinct values": Applied(lambda x: x[:, 0, 0, :3].sign().unique(return_inverse=True)[1]),
    "distinct rows": Applied(lambda x: x[:, 0, 0, :2].sign().unique(dim=0, return_inverse=True)[1]),
    "triangular factors": Applied(lambda x: torch.linalg.lu(x[:, :3, :3, 0])[2]),
    "a system by factors": Applied(
        lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x[:, :2, :2, 0]), x[:, :2, :2, 1])
    ),
    "a table of short rows": Applied(
        lambda x, table: table(x[:, 0, 0].long().abs()), nn.Embedding(9, 3, max_norm=1.0)
    ),
    "bags of short rows": Applied(
        lambda x, table: table(x[:, 0, 0].long().abs()), nn.EmbeddingBag(9, 3, max_norm=1.0)
    ),
    "a product of whole numbers": Applied(
        lambda x: (9 * x[:, 0, 0]).int() @ torch.arange(12, dtype=torch.int32).reshape(6, 2)
    ),
    "a layer of whole numbers": Applied(
        lambda x: functional.linear((9 * x).int(), torch.ones(2, 6, dtype=torch.int32))
    ),
    "reflection of a volume": Applied(
        lambda x: functional.pad(x[:, None], (1, 2, 0, 1, 2, 1), mode="reflect")
    ),
    "repetition along other axes": Applied(
        lambda x: functional.pad(x.transpose(0, 3), (0, 0, 0, 0, 1, 2), mode="replicate").transpose(
            0, 3
        )
    ),
    "circles along an open axis": Applied(
        lambda x: functional.pad(x[:, 0, 0].T[None], (1, 1), mode="circular")[0].T[1:-1]
    ),
    "antialiasing of an open image": Applied(
        lambda x: (
            functional.interpolate(x.transpose(0, 3), (3, 5), mode="bilinear", antialias=True)[
                :, :, :, :1
            ].transpose(0, 3)
            + x[:, :1, :1, :1]
        )
    ),
    "uneven adaptive windows": Applied(lambda x: functional.adaptive_avg_pool2d(x, (3, 4))),
}
for layer in OPERATORS.values():
    layer.requires_grad_(requires_grad=False)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.sampled(4)
def test_it_matches_torch_at_every_batch(name: str, tmp_path: Path) -> None:
    module = OPERATORS[name].eval()
    x = torch.randn(BATCH.typical, 4, 8, 6, generator=torch.Generator().manual_seed(1))
    program = saved(converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}), tmp_path)
    for batch in (BATCH.typical, BATCH.max):
        given = x.repeat(2, 1, 1, 1)[:batch] * 0.3
        with torch.no_grad():
            expected = module(given).numpy()
        np.testing.assert_allclose(
            evaluated(program, {"x": given})["y"], expected, rtol=1e-5, atol=1e-6
        )


def test_what_torch_cannot_decompose_is_refused_with_its_place() -> None:
    module = Applied(torch.special.airy_ai)
    x = torch.randn(2, 4, 8, 6)
    with pytest.raises(StageFailedError, match=r"airy_ai") as caught:
        converted(behind_contract(module, {"x": x}, ["y"]), {"x": x})
    (finding,) = caught.value.findings
    assert finding.code == "V103"
    assert (finding.place.source or "").startswith("test_missing_operators.py:")


def test_a_trace_without_torch_export_has_nothing_to_decompose() -> None:
    from convkit.runtimes.coreml.conversion.traced_program import TracedProgram

    assert simplified(TracedProgram(None, lambda _: ""), ValueError("no"), "model") is None
