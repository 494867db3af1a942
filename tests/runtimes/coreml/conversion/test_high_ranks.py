"""Windows cut out of images, which takes six dimensions in torch and at most five in Core ML."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated

from convkit.runtimes.coreml.conversion.high_ranks import merged_axes
from convkit.worker.exporters.export_job import UnexportableError


class Windows(torch.nn.Module):
    """Swin's partition into windows of 2 x 2, something computed in each, and the way back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        cut = x.view(batch, height // 2, 2, width // 2, 2, channels)
        windows = cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, channels)
        windows = torch.softmax(windows, 1)
        cut = windows.view(-1, height // 2, width // 2, 2, 2, channels)
        return cut.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)


def images(rows: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(rows, 4, 6, 3, generator=torch.Generator().manual_seed(rows))}


@pytest.mark.thorough
def test_windows_are_cut_at_any_batch() -> None:
    program = converted(behind_contract(Windows(), images(2), ["y"]), images(2)).program
    for rows in (1, 2, 4):
        found = evaluated(program, images(rows))["y"]
        assert np.abs(found - Windows()(**images(rows)).numpy()).max() <= 1e-6, rows


def patches(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, _ = x.shape
    return x.view(batch, height // 2, 2, width // 3, 3, 3)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "no two axes stay side by side": lambda x: torch.einsum("nhpwqc->nchpwq", patches(x)).reshape(
        x.shape[0], 3, *x.shape[1:3]
    ),
    "every axis turned around": lambda x: patches(x).permute(5, 4, 3, 2, 1, 0).sum((0, 2)),
    "a buffer of six dimensions": lambda x: (patches(x) * FACTORS).amax((2, 4)),
    "more runs than dimensions": lambda x: (
        patches(x) + FACTORS[:, :, :, :, :1] * FACTORS[:, :, :1, :, :, :1]
    ).mean((1, 3)),
    "seven dimensions": lambda x: patches(x).unsqueeze(1).softmax(-2).select(1, 0).mean((2, 4)),
    "products of matrices": lambda x: (patches(x) @ patches(x).mT).flatten(3).sum(-1),
    "joined and taken apart": lambda x: torch.cat(
        [patches(x), FACTORS.expand(x.shape[0], 2, 2, 2, 3, 3)], 1
    )[:, 1:].sum((2, 4)),
    "elements repeated in five dimensions": lambda x: (
        torch.stack([x.cos(), x.sin()]).repeat_interleave(2, -1)
        + torch.stack([x, -x]).repeat_interleave(3, 0)[1:3].mean(-1, keepdim=True)
    ),
    "parts of five dimensions": lambda x: sum(
        factor * each.amax(3) for factor, each in enumerate(patches(x).unbind(2), 1)
    ),
}
FACTORS = torch.randn(1, 1, 2, 1, 3, 3, generator=torch.Generator().manual_seed(5))


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(3)
def test_it_is_computed_with_five_dimensions(name: str) -> None:
    module = Applied(FUNCTIONS[name])
    program = converted(behind_contract(module, images(2), ["y"]), images(2)).program
    for rows in (2, 3):
        expected, found = module(**images(rows)).numpy(), evaluated(program, images(rows))["y"]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-5, rows


def test_an_operation_without_a_rule_is_named_with_its_line() -> None:
    module = Applied(lambda x: patches(x).flip(4).sum((2, 4)))
    with pytest.raises(UnexportableError) as caught:
        converted(behind_contract(module, images(2), ["y"]), images(2))
    (finding,) = caught.value.findings
    assert finding.code == "V103"
    assert "aten::flip" in finding.message
    assert "at most five dimensions" in finding.message


@pytest.mark.parametrize(
    ("permutation", "groups"),
    [
        ((0, 1, 3, 2, 4, 5), [(0, 1), (3,), (2,), (4, 5)]),
        ((4, 5, 3, 2, 0, 1), [(4, 5), (3,), (2,), (0, 1)]),
        ((0, 1, 2), [(0, 1, 2)]),
        ((2, 1, 0), [(2,), (1,), (0,)]),
    ],
)
def test_axes_that_stay_side_by_side_are_merged(
    permutation: tuple[int, ...], groups: list[tuple[int, ...]]
) -> None:
    assert merged_axes(permutation) == groups
