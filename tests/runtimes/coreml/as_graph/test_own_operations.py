"""Faults of an ML program's own operations: another argument, another operator, a lost weight."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract
from mil_programs import mb, small_program
from torch import nn

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreml.as_graph import definitions
from convkit.runtimes.coreml.causes import ProgramSearch
from convkit.worker.cause.recording.torch_recording import record, state_of
from convkit.worker.exporters.export_job import WRAPPER

X = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(1))
Body = Callable[..., Any]


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.layer_norm(self.first(x), (6,))
        y = torch.where(y > x, 2 * y, x)
        return self.last(torch.cumsum(y, 1))


def searched(body: Body) -> list[Finding]:
    module = behind_contract(Chosen(), {"x": X}, ["y"])
    recording = record(module, {"x": X}, ("y",), wrapper=WRAPPER)
    program = small_program(body, {"x": (tuple(X.shape), "fp32")})
    state = state_of(module.model)
    search = ProgramSearch(
        program, recording, state, {"x": X.numpy()}, "typical", Remedy("Another release.")
    )
    return search.causes(None)


def chosen(
    axis: int = -1,
    compare: str = "greater",
    *,
    exclusive: bool = False,
    bias: bool = True,
    least: float | None = None,
) -> Body:
    """Return the model's program as a converter with a fault might write it."""
    weights = {name: each.detach().numpy() for name, each in Chosen().state_dict().items()}
    given = {"bias": weights["first.bias"]} if bias else {}

    def body(x):
        y = mb.linear(x=x, weight=weights["first.weight"], name="first", **given)
        y = mb.layer_norm(x=y, axes=[axis], epsilon=np.float32(1e-5), name="norm")
        more = getattr(mb, compare)(x=y, y=x, name="more")
        y = mb.select(cond=more, a=mb.mul(x=y, y=np.float32(2)), b=x, name="chosen")
        y = mb.cumsum(x=y, axis=1, exclusive=exclusive, reverse=False, name="total")
        if least is not None:  # only some of the elements are smaller
            y = mb.maximum(x=y, y=np.float32(least), name="extra")
        return mb.linear(x=y, weight=weights["last.weight"], bias=weights["last.bias"], name="y")

    return body


def test_a_right_program_has_no_cause() -> None:
    assert searched(chosen()) == []


@pytest.mark.parametrize(
    ("changes", "code", "node", "says"),
    [
        ({"axis": 1}, "N405", "norm", "axes is [1] and should be [-1]"),
        ({"compare": "less"}, "N405", "more", "it is less and should be greater"),
        ({"exclusive": True}, "N405", "total", "exclusive is True and should be False"),
        ({"least": 0.0}, "N406", "extra", "should not be there"),
        ({"bias": False}, "N403", "first", "first.bias"),
    ],
)
def test_the_operation_is_named(changes: dict, code: str, node: str, says: str) -> None:
    finding = searched(chosen(**changes))[0]
    assert (finding.code, finding.place.node) == (code, node)
    assert says in finding.message
    assert finding.evidence["proven"] is True


def test_operations_of_one_signature_are_alike() -> None:
    assert {"less", "greater_equal", "equal"} <= set(definitions.alike("greater"))
    assert {"reduce_max", "reduce_sum"} <= set(definitions.alike("reduce_mean"))
    assert {"relu", "square", "rsqrt"} <= set(definitions.alike("sqrt"))
    assert "softmax" not in definitions.alike("sqrt")
    assert "relu" not in definitions.alike("reduce_mean")


def test_modes_are_those_of_the_definition() -> None:
    assert {"EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"} <= set(
        definitions.words("gelu")
    )
    assert {"reflect", "replicate", "constant"} <= set(definitions.words("pad"))
