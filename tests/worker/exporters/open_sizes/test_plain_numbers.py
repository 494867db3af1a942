"""Sizes of which Python's own functions make plain numbers, in traces of small modules."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.exporters.open_sizes.plain_numbers import open_numbers

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "length")),),
    (),
    (Axis("batch", 1, 4, 8), Axis("length", 20, 32, 64)),
)
Function = Callable[[torch.Tensor], torch.Tensor]

KEPT: dict[str, Function] = {
    "len": lambda x: x + torch.arange(len(x))[:, None],
    "int of a half": lambda x: x[:, : int(x.shape[1] / 2)],
    "int of a part": lambda x: torch.nn.functional.interpolate(
        x[:, None], size=int(x.shape[1] * 1.5)
    ),
    "float": lambda x: x / float(x.shape[1]),
    "sqrt": lambda x: x / math.sqrt(x.shape[1]),
    "log": lambda x: x * math.log(x.shape[1] + 1),
    "ceil": lambda x: x[:, : math.ceil(x.shape[1] / 3)],
    "floor": lambda x: x[:, : math.floor(x.shape[1] * 0.25)],
    "numpy's sqrt": lambda x: x / np.sqrt(x.shape[1]),
    "numpy's ceil": lambda x: x[:, : int(np.ceil(x.shape[1] / 2))],
    "round, at halves": lambda x: x[:, : round(x.shape[1] / 2) - 1],
    "round, a part": lambda x: x * round(x.shape[1] * 0.35),
    "round, two digits": lambda x: x * round(x.shape[1] / 3, 2),
    "round, to tens": lambda x: (
        x * round(x.shape[1], -1) + round(x.shape[1]) + round(x.shape[1], 2)
    ),
    "divmod": lambda x: x * divmod(x.shape[1], 7)[0] + divmod(-x.shape[1], 7)[1],
    "numpy's round": lambda x: x[:, : int(np.round(x.shape[1] * 0.35))],
    "isqrt": lambda x: x * math.isqrt(x.shape[1]),
    "exp": lambda x: x * math.exp(-x.shape[1] / 10),
    "a type, not a call": lambda x: x * (2 if isinstance(x.ndim, int) else 3),
    "plain numbers": lambda x: x + int("3") + float(2) + len([1, 2]) + math.sqrt(4.0),
}


class Applied(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize("name", KEPT)
def test_it_is_what_the_module_computes_at_other_sizes(name: str) -> None:
    module = Applied(KEPT[name])
    program = trace(module, [torch.randn(4, 32)], CONTRACT, None)
    for shape in ((1, 20), (3, 25), (8, 64), (2, 30), (2, 50)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module(check_guards=False)(x), module(x))


@pytest.mark.thorough
def test_a_size_that_decides_is_refused_as_before() -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        return x / 2 if math.log(x.shape[1]) > 3.2 else x

    with pytest.raises(UnexportableError, match="length"):
        trace(Applied(halved), [torch.randn(4, 32)], CONTRACT, None)


def test_a_file_has_its_own_names_again() -> None:
    before = dict(globals())
    with open_numbers(Applied(KEPT["len"]), None):
        within = dict(globals())
    assert within["math"] is not before["math"]
    assert "len" in within
    assert globals() == before
