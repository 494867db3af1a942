"""What coremltools converts is the same, however torch's operators are decomposed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.nn import functional

from convkit.runtimes.coreml.conversion import traced_program
from convkit.runtimes.coreml.conversion.traced_program import decomposed


class Computes(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(4)
        self._function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self._function(self.norm(self.layer(x)))


# What a program computes, and whether it is decomposed call by call.
PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "layers": (lambda x: functional.gelu(functional.layer_norm(x, (6,))), True),
    "attention": (lambda x: functional.scaled_dot_product_attention(*[x[:, None]] * 3), True),
    "statistics": (lambda x: x.var(dim=1, correction=0) + torch.std_mean(x, 1)[0], True),
    "a masked softmax": (lambda x: x.masked_fill(x > 0, -1e4).softmax(-1).triu(), True),
    "windows": (lambda x: functional.unfold(x[:, None], (2, 2)), True),
    "sizes": (lambda x: x.reshape(x.shape[0] * 2, -1, 3).softmax(0), True),
    "changed in place": (lambda x: x.relu_().add_(1), False),
}


def exported(function: Callable[..., Any]) -> torch.export.ExportedProgram:
    rows = {0: torch.export.Dim("rows", min=1, max=8)}
    with torch.no_grad():
        return torch.export.export(
            Computes(function).eval(), (torch.randn(3, 4, 6),), dynamic_shapes={"x": rows}
        )


def described(program: torch.export.ExportedProgram) -> list[object]:
    """Return each node's operator and arguments, with nodes by their place, not their names."""
    places = {node: place for place, node in enumerate(program.graph.nodes)}

    def place(node: Node) -> str:
        return f"%{places[node]}"

    return [
        (node.op, str(node.target), map_arg(node.args, place), map_arg(node.kwargs, place))
        for node in program.graph.nodes
        if node.op == "call_function"
    ]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(3)
def test_the_program_is_that_of_a_second_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, locally = PROGRAMS[name]
    traced_again: list[object] = []

    def whole(
        given: torch.export.ExportedProgram, table: dict[Any, Callable[..., Any]]
    ) -> torch.export.ExportedProgram:
        traced_again.append(given)
        return torches_own(given, dict(table))

    torches_own = torch.export.ExportedProgram.run_decompositions
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", whole)
    program = decomposed(exported(function))
    assert (not traced_again) == locally
    monkeypatch.setattr(traced_program, "run_decompositions", whole)
    expected = decomposed(exported(function))
    assert traced_again
    assert described(program) == described(expected)
    assert program.dialect == expected.dialect == "ATEN"
    x = torch.randn(5, 4, 6)
    assert torch.equal(program.module()(x), expected.module()(x))
