"""Types that are read from the trace give the graphs of programs that torch runs again."""

import operator
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.onnx._internal.fx.passes import type_promotion

from convkit.worker.exporters.known_types import reading_known_types


class Computes(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
        return self._function(x, n)


def branch(x: torch.Tensor, n: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x, n: x + n, lambda x, n: x - n, (x, n))


# What a program computes of floats (rows, 4) and integers (rows, 4); whether nodes are added, and
# whether torch runs fewer calls.
PROGRAMS: dict[str, tuple[Callable[..., Any], bool, bool]] = {
    "one type": (lambda x, _: (x * 2.0 + x).relu(), False, True),
    "float and integer": (lambda x, n: x * n, True, True),
    "in a row": (lambda x, n: ((x + n) * n - 1) / 3, True, True),
    "integers divided": (lambda _, n: n / 2, True, True),
    "integer and half": (lambda x, n: x.half() + n, True, True),
    "compared": (lambda x, n: torch.where(x > n, x, n), True, True),
    "a size": (lambda x, n: x * n.shape[0], True, True),
    "several results": (lambda x, n: operator.add(*(x + n).split(2, dim=1)), True, True),
    "branch": (branch, True, True),
    "sizes by values": (lambda x, n: x[x > 0] + n.sum(), True, False),
}


def promoted(function: Callable[..., Any]) -> tuple[str, list[str]]:
    """Return a program's graph with explicit promotions, and the types and shapes of its values."""
    rows = torch.export.Dim("rows", min=1, max=8)
    arguments = (torch.rand(3, 4), torch.arange(12).reshape(3, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Computes(function), arguments, dynamic_shapes=({0: rows}, {0: rows}), strict=False
        )
        for module in program.graph_module.modules():
            assert isinstance(module, torch.fx.GraphModule)
            type_promotion.InsertTypePromotion(module).run()
    values = [
        f"{node.target} {each.dtype} {each.shape}"
        for node in program.graph.nodes
        if isinstance(each := node.meta.get("val"), torch.Tensor)
    ]
    return str(program.graph), values


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that torch has run again."""
    seen: list[str] = []
    run = torch.fx.Interpreter.call_function

    def counted(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        seen.append(str(target))
        return run(self, target, args, kwargs)

    monkeypatch.setattr(torch.fx.Interpreter, "call_function", counted)
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sampled(2)
def test_the_graph_is_the_same(name: str, runs: list[str]) -> None:
    function, adds, reads = PROGRAMS[name]
    expected = promoted(function)
    with_all = len(runs)
    runs.clear()
    with reading_known_types():
        found = promoted(function)
    assert found == expected
    added = "convert_element_type" in expected[0] or "scalar_tensor" in expected[0]
    assert added == adds
    assert (len(runs) < with_all) == reads
    if reads and not adds:
        assert not runs


def test_the_exporter_is_restored() -> None:
    before = type_promotion._TypePromotionInterpreter
    with reading_known_types():
        assert type_promotion._TypePromotionInterpreter is not before
    with pytest.raises(KeyError), reading_known_types():
        raise KeyError
    assert type_promotion._TypePromotionInterpreter is before
