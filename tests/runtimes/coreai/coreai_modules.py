"""Modules for Core AI, with their contracts, and their way through the stages."""

import dataclasses
import textwrap
from pathlib import Path

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    BuildRequest,
    DiagnoseRequest,
    LowPrecision,
    Original,
    ReferenceRequest,
    Sample,
    Source,
    VerifyRequest,
    VerifyResult,
)
from convkit.runtimes.coreai import build, diagnose, verify
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.worker.job_context import Context
from convkit.worker.stages import reference

MODELS = """
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.query = nn.Embedding(50, 8), nn.Linear(8, 8)

        def forward(self, ids, mask):
            x = self.embed(ids)
            query, x = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in (self.query(x), x))
            seen = (mask > 0)[:, None, None]
            found = scaled_dot_product_attention(query, x, x, attn_mask=seen)
            return self.query(found.transpose(1, 2).flatten(2))

    class WithoutHeads(Attention):
        def forward(self, ids, mask):
            x, seen = self.embed(ids), (mask > 0)[:, None]
            found = scaled_dot_product_attention(self.query(x), x, x, attn_mask=seen)
            return torch.nan_to_num(found)

    class Encoder(Attention):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 1)

        def forward(self, ids, mask):
            return self.layers(self.embed(ids), src_key_padding_mask=mask == 0)

    class Overflow(Attention):
        def forward(self, ids, mask):
            big = self.query(self.embed(ids)) * 1000
            return (big * big).mean(-1, keepdim=True).sqrt() / 1000 * mask[..., None]

    class Refused(Attention):
        def forward(self, ids, mask):
            x = self.embed(ids) * mask[..., None]
            return torch.special.airy_ai(x)

    class Spread(Attention):
        def forward(self, ids, mask):
            x = self.embed(ids) * mask[..., None]
            lowest = ids.argmin(1, keepdim=True)[..., None] - 0.092103 * ids[..., None]
            ordered = torch.where(mask[..., None] > 0, x.sort(-1).values, 1.5707964)
            spread = x.var(2, keepdim=True, correction=0)
            return ordered / (1 + x.std(-1, keepdim=True)) + spread + lowest

    class Turned(Attention):
        def forward(self, ids, mask):
            x = self.embed(ids) * mask[..., None]
            return torch.atan2(x, -0.0 * x.abs())

    class Recurrent(Attention):
        def __init__(self):
            super().__init__()
            self.both = nn.LSTM(8, 4, num_layers=2, batch_first=True, bidirectional=True)

        def forward(self, ids, mask):
            return self.both(self.embed(ids) * mask[..., None])[0]

    class Pairs(Attention):
        def __init__(self):
            super().__init__()
            self.score = nn.Parameter(torch.ones(8, 8))

        def forward(self, ids, mask):
            x = self.embed(ids) * mask[..., None]
            return x + self.scored(x).sum((0, 3)) * 0.01

        def scored(self, x):
            later = x[1:, :, :, None]
            return later + self.score

    class Wide(Attention):
        def __init__(self):
            super().__init__()
            self.wide = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 8))

        def forward(self, ids, mask):
            return self.wide(self.embed(ids)) * mask[..., None]

    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.mix = nn.Linear(4, 4)

        def forward(self, x, kept):
            now = torch.cat([kept[:, 1:], x], dim=1)
            return self.mix(now).sum(1), now

    class Large(Attention):
        def forward(self, ids, mask):
            hashed = (ids * 2654435761) % 1000003
            return (hashed / 1000003)[..., None] * mask[..., None]
"""
SAMPLES = {"ids": Sample("integers", (0, 50)), "mask": Sample("padding_mask")}


def contract(width: int = 8) -> Contract:
    """Return the contract of these modules; `width` is the size of their output's last axis."""
    shape = ("batch", "length")
    return Contract(
        (TensorSpec("ids", "int64", shape), TensorSpec("mask", "int64", shape)),
        (TensorSpec("y", "float32", (*shape, width)),),
        (Axis("batch", 1, 2, 4), Axis("length", 2, 5, 9)),
    )


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A module on its way through the stages, in one folder."""

    folder: Path
    name: str
    width: int = 8
    options: CoreAIOptions = dataclasses.field(default_factory=CoreAIOptions)
    precision: LowPrecision | None = None

    @property
    def original(self) -> Original:
        """Return the module, in a file of the folder."""
        file = self.folder / "net.py"
        file.write_text(textwrap.dedent(MODELS))
        return Original(Source("factory", str(file), self.name), SAMPLES, "signature")

    def build(self, kind: str = "built") -> list[Finding]:
        """Build into a folder, and return the findings."""
        request = BuildRequest(
            contract(self.width), self.options, self.precision, "cpu", original=self.original
        )
        return build.run(request, self._context(kind))[1]

    def verify(self) -> VerifyResult:
        """Verify what `build` has built."""
        original = self.original
        told = contract(self.width)
        request = ReferenceRequest(original.source, told, SAMPLES, 0, (), None, ())
        reference.run(request, self._context("reference"))
        built, known = str(self.folder / "built"), str(self.folder / "reference")
        judged = VerifyRequest(told, self.options, self.precision, "cpu", built, known, None)
        return verify.run(judged, self._context("verified"))[0]

    def causes(self, case: str, limit: float) -> list[Finding]:
        """Return why a case differs."""
        request = DiagnoseRequest(
            self.original.source,
            contract(self.width),
            None,
            str(self.folder / "reference"),
            case,
            original=self.original,
            built=str(self.folder / "built"),
            options=encode(self.options),
            limits={"y": {"max_abs": limit}} if self.precision is not None else {},
        )
        return diagnose.run(request, self._context(f"causes-{case}".replace(":", "-")))[1]

    def _context(self, name: str) -> Context:
        output = self.folder / name
        output.mkdir()
        return Context(output)


def errors(result: VerifyResult) -> dict[str, float]:
    """Return each case's largest error."""
    return {each.case: max(one.max_abs for one in each.outputs) for each in result.cases}
