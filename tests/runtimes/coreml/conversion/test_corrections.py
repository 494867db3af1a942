"""What coremltools 9.0 translates wrong: each row is right here, and still wrong there."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated
from torch import nn
from torch.nn.functional import instance_norm, log_softmax, softplus

from convkit.runtimes.coreml.conversion import module_conversion
from convkit.runtimes.coreml.conversion.corrections import CORRECTIONS, OWN
from convkit.runtimes.coreml.conversion.missing_operators import register_missing_operators

Function = Callable[[torch.Tensor], torch.Tensor]


class Applied(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


class Decided(Applied):
    """Followed by torch.jit.trace, because it decides by its data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x) if x.sum() > -1e9 else x


def left_over(x: torch.Tensor, rounding_mode: str) -> torch.Tensor:
    whole = (2**27 * x).int()
    return whole - torch.div(whole, 3, rounding_mode=rounding_mode) * 3


def of_largest(x: torch.Tensor) -> torch.Tensor:
    """Return each row's channel with the largest sum, as the only one."""
    places = x.sum((2, 3)).argmax(1).view(-1, 1, 1, 1)
    return x.gather(1, places.expand(-1, 1, x.shape[2], x.shape[3]))


# By the corrected operator's name: models whose conversion by coremltools alone is wrong.
WRONG: dict[str, list[Function]] = {
    "add": [lambda x: torch.add(x, x.flip(1), alpha=0.5)],
    "sub": [lambda x: torch.sub(x, x.flip(1), alpha=2)],
    "rsub": [lambda x: torch.rsub(x, x.flip(1), alpha=2)],
    "std.correction": [lambda x: x / (1 + x.std()), lambda x: x * torch.std_mean(x)[0]],
    "var.correction": [lambda x: x / (1 + x.var()), lambda x: x * torch.var_mean(x)[0]],
    "log_softmax": [lambda x: log_softmax(60 * x, 1), lambda x: log_softmax(60 * x, -1)],
    "triu": [lambda x: (x[:, :, :6] + torch.full((6, 6), -torch.inf).triu(1)).softmax(-1)],
    "tril": [lambda x: (x[:, :, :6] + torch.full((6, 6), -torch.inf).tril(-1)).softmax(-1)],
    "softplus": [lambda x: softplus(10 * x, 3, 5)],
    "atan2": [
        lambda x: torch.atan2(x.relu(), x.flip(1)),
        lambda x: torch.atan2(x, 1e-9 * x.flip(1)),
    ],
    "log": [lambda x: x.relu().log().clamp(-200, 10)],
    "floor_divide": [lambda x: x.roll(x.shape[0] // 2, 0)],
    "div": [lambda x: left_over(x, "floor"), lambda x: left_over(x, "trunc")],
    "mean": [lambda x: (4 * x).int().mean(dtype=torch.float32) + x],
    "mean.dim": [lambda x: (4 * x).int().mean((1, 3), dtype=torch.float32)],
    "sum": [lambda x: x.index_select(3, (x > 9).sum().reshape(1))],
    "sum.dim_intlist": [lambda x: x.gather(3, (x > 0).sum(3, keepdim=True) // 2)],
    "cumsum": [lambda x: x.cumsum(-2)],
    "argmax": [lambda x: x[0].argmax().reshape(1)],
    "argmin": [lambda x: x[0].argmin(keepdim=True).flatten()],
    "ceil": [lambda x: x * torch.ones(9)[: math.ceil(x.shape[0] / 2) + 1].sum()],
    "floor": [lambda x: x * torch.ones(9)[: math.floor(x.shape[0] / 2) + 1].sum()],
    "clamp": [lambda x: x.gather(3, x.abs().long().clamp(min=1))],
    "instance_norm": [
        lambda x: instance_norm(x, torch.arange(4.0), torch.arange(1.0, 5), use_input_stats=False)
    ],
    "index": [lambda x: x[x[:, 0, 0, 0] < 9, torch.tensor([1])]],
    "squeeze.dim": [lambda x: of_largest(x).squeeze(1)],
    "squeeze.dims": [lambda x: of_largest(x[..., :1]).squeeze((1, 3))],
}
# The other name of one of them, which torch's decompositions leave.
ALIASES = {
    "std": "std.correction",
    "var": "var.correction",
    "_log_softmax": "log_softmax",
    "floordiv": "floor_divide",
    "clip": "clamp",
    "index.tensor": "index",
    "squeeze": "squeeze.dim",
}
ROWS = [(name, place) for name, each in WRONG.items() for place in range(len(each))]
X = torch.randn(BATCH.typical, 4, 8, 6, generator=torch.Generator().manual_seed(1))


def differs(function: Function, kind: type[Applied] = Applied) -> bool:
    """Return True if a conversion differs from torch, or fails."""
    module = kind(function)
    try:
        program = converted(behind_contract(module, {"x": X}, ["y"]), {"x": X}).program
    except Exception:  # noqa: BLE001 - whatever the converter raises: it does not convert it
        return True
    for given in (X, torch.cat([0.7 * X, X.flip(0)])[: BATCH.max]):
        expected = module(given).numpy()
        found = evaluated(program, {"x": given})["y"]
        scale = max(1.0, float(np.abs(expected).max()))
        if found.shape != expected.shape or not np.abs(found - expected).max() <= 2e-6 * scale:
            return True
    return False


def test_every_correction_has_a_model() -> None:
    assert set(WRONG) | set(ALIASES) | {"int"} == set(CORRECTIONS)


def test_a_product_of_fixed_sizes_is_a_number_in_torchscript() -> None:
    module = Decided(lambda x: x.reshape(x.shape[0] * x.shape[1], -1))
    program = converted(behind_contract(module, {"x": X}, ["y"], axes=()), {"x": X}).program
    assert np.array_equal(evaluated(program, {"x": X})["y"], X.reshape(8, -1).numpy())


@pytest.mark.parametrize(("name", "place"), ROWS)
@pytest.mark.sampled(8)
def test_it_matches_torch(name: str, place: int) -> None:
    assert not differs(WRONG[name][place])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum(2, keepdim=True) + x.sum(),
        lambda x: x.mean((1, 3)) + x.mean(),
        lambda x: x / (1 + x.std()) + x.var(1, keepdim=True),
    ],
)
def test_programs_of_torchscript_name_no_overloads(function: Function) -> None:
    assert not differs(function, Decided)


@pytest.mark.thorough  # it changes with coremltools' release only, which is pinned
@pytest.mark.parametrize(("name", "place"), ROWS)
def test_coremltools_still_gets_it_wrong(
    name: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    register_missing_operators()
    for each in (name, *(alias for alias, of in ALIASES.items() if of == name)):
        monkeypatch.setitem(_TORCH_OPS_REGISTRY.name_to_func_mapping, each, OWN[each])
    monkeypatch.setattr(module_conversion, "register_missing_operators", lambda: None)
    assert differs(WRONG[name][place])


UNCHANGED: dict[str, Function] = {
    "a sum": lambda x: x + x.flip(1),
    "a variance with a correction": lambda x: x.var((1, 2), correction=0),
    "a deviation": lambda x: x.std(-1),
    "softplus": lambda x: softplus(3 * x, 2),
    "a mean": lambda x: x.mean((2, 3)),
}


@pytest.mark.parametrize("name", UNCHANGED)
@pytest.mark.sampled(2)
def test_other_programs_stay_as_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    def operations() -> list[tuple[str, Any]]:
        held = converted(behind_contract(Applied(UNCHANGED[name]), {"x": X}, ["y"]), {"x": X})
        return [
            (each.op_type, [str(out.shape[1:]) for out in each.outputs])
            for each in held.model._mil_program.functions["main"].operations
        ]

    corrected = operations()
    for each, own in OWN.items():
        monkeypatch.setitem(_TORCH_OPS_REGISTRY.name_to_func_mapping, each, own)
    monkeypatch.setattr(module_conversion, "register_missing_operators", lambda: None)
    assert operations() == corrected
