"""Attention and norms that coremltools translates wrong, or not at all, beside torch at several
sizes.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, SEQUENCE, behind_contract, converted, evaluated, saved
from torch.nn import functional

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.module_conversion import Converted

HEADS, WIDTH = 4, 8
OUTPUTS = ("selected", "added", "lowest", "causal", "grouped", "scaled")


class Attentions(torch.nn.Module):
    """Every way in which a mask reaches torch's attention."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query = x.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        key, value = query.flip(1), query.flip(-1)
        live = (mask != 0)[:, None, None, :]
        attend = functional.scaled_dot_product_attention
        infinite = torch.zeros(live.shape).masked_fill(~live, -math.inf)
        lowest = torch.zeros(live.shape).masked_fill(~live, torch.finfo(torch.float32).min)
        few = key[:, : HEADS // 2], value[:, : HEADS // 2]
        found = (
            attend(query, key, value, attn_mask=live.expand(-1, 1, x.shape[1], -1)),
            attend(query, key, value, attn_mask=infinite),
            attend(query, key, value, attn_mask=lowest),
            attend(query, key, value, is_causal=True),
            attend(query, *few, attn_mask=live, enable_gqa=True),
            attend(query, key, value, attn_mask=live, scale=0.5),
        )
        return tuple(each.transpose(1, 2) for each in found)


def inputs(rows: int = 3, positions: int = 7) -> dict[str, torch.Tensor]:
    """Rows of which the first is fully masked and the second padded."""
    generator = torch.Generator().manual_seed(5)
    mask = torch.ones(rows, positions, dtype=torch.int64)
    mask[0] = 0
    mask[1:2, positions // 2 :] = 0
    return {"x": torch.randn(rows, positions, HEADS * WIDTH, generator=generator), "mask": mask}


@pytest.fixture(scope="module")
def attentions() -> Converted:
    module = behind_contract(Attentions(), inputs(), OUTPUTS, (BATCH, SEQUENCE))
    return converted(module, inputs())


@pytest.mark.parametrize(("rows", "positions"), [(3, 7), (1, 2), (4, 20)])
@pytest.mark.sampled(1)
def test_attention_with_fully_masked_rows_is_torch_s(
    attentions: Converted, rows: int, positions: int
) -> None:
    given = inputs(rows, positions)
    found = evaluated(attentions.program, given)
    with torch.no_grad():
        expected = dict(zip(OUTPUTS, Attentions()(**given), strict=True))
    for name in OUTPUTS:
        error = np.abs(found[name] - expected[name].numpy()).max()
        assert error <= 2e-6, name
    assert not expected["selected"][0].any(), "torch gives zeros for a row without a live position"
    assert expected["lowest"][0].any(), "and an average under the lowest number, which is finite"


@pytest.mark.slow
@pytest.mark.thorough
def test_fully_masked_rows_stay_zero_in_float16(tmp_path: Path) -> None:
    module = behind_contract(Attentions(), inputs(), OUTPUTS, (BATCH, SEQUENCE))
    program = saved(converted(module, inputs(), LowPrecision("float16", saturate=True)), tmp_path)
    found = evaluated(program, inputs())
    with torch.no_grad():
        expected = dict(zip(OUTPUTS, Attentions()(**inputs()), strict=True))
    for name in ("selected", "added", "grouped", "scaled"):
        assert not found[name][0].any(), name
        assert np.abs(found[name] - expected[name].numpy()).max() <= 1e-2, name


class Norms(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.norm = torch.nn.GroupNorm(2, 6, eps=1e-3)
        self.plain = torch.nn.GroupNorm(3, 6, affine=False)
        for parameter in self.norm.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)

    def forward(self, x: torch.Tensor, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.norm(x), self.plain(flat)


@pytest.mark.thorough
def test_group_norm_takes_any_batch() -> None:
    def given(rows: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(rows)
        return {
            "x": torch.randn(rows, 6, 5, 4, generator=generator),
            "flat": torch.randn(rows, 6, generator=generator),
        }

    module = behind_contract(Norms(), given(2), ["images", "vectors"])
    program = converted(module, given(2)).program
    for rows in (1, 2, 4):
        found = evaluated(program, given(rows))
        with torch.no_grad():
            expected = module(*given(rows).values())
        for name, values in zip(("images", "vectors"), expected, strict=True):
            assert np.abs(found[name] - values.numpy()).max() <= 3e-6, (name, rows)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.gru = torch.nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.lstm = torch.nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(self.gru(x)[0])[0]


@pytest.mark.thorough
def test_recurrent_layers_take_any_length() -> None:
    def given(rows: int, positions: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(positions)
        return {"x": torch.randn(rows, positions, 3, generator=generator)}

    module = behind_contract(Recurrent(), given(2, 7), ["y"], (BATCH, SEQUENCE))
    conversion = converted(module, given(2, 7))
    assert conversion.refusal is not None, "torch.export fixes the length"
    for sizes in ((1, 2), (2, 7), (4, 20)):
        found = evaluated(conversion.program, given(*sizes))
        with torch.no_grad():
            expected = module(*given(*sizes).values())[0]
        assert np.abs(found["y"] - expected.numpy()).max() <= 3e-6, sizes
