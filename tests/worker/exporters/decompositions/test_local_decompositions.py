"""Programs that are decomposed call by call give the graphs of those that are traced again."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import onnx_ir
import pytest
import torch
from onnx_ir.passes.common import IdentityEliminationPass
from torch.nn import functional
from torch.onnx._internal.exporter import _fx_passes

from convkit.worker.exporters.decompositions.local_decompositions import decomposing_locally
from convkit.worker.exporters.onnxscript_speed import without_parsing


class Computes(torch.nn.Module):
    """A layer, then a function of (rows, 4, 6)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 6)
        self.register_buffer("count", torch.zeros(()))
        self._function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self._function(self.layer(x))


class Counts(Computes):
    def forward(self, x: torch.Tensor) -> Any:
        self.count.add_(1)
        return self.layer(x) * self.count


def branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return x * 2


# What a program computes, and whether it is decomposed call by call.
PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "calls that repeat": (lambda x: functional.silu(functional.silu(x)).reshape(-1, 6), True),
    "sizes": (lambda x: x.reshape(x.shape[0] * 2, -1).flatten().unflatten(0, (-1, 6)), True),
    "sizes in a decomposition": (lambda x: x.expand_as(x).repeat(1, 2, 1).tile(2, 1, 1), True),
    "several results": (lambda x: torch.cat(x.chunk(3, dim=2)[::-1] + x.unbind(1)[:0], 1), True),
    "split unequally": (lambda x: x.split([1, 2, 1], dim=1)[1], True),
    "statistics": (lambda x: torch.std(x, dim=1) + x.var(dim=1, correction=0), True),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), True),
    "a constant": (lambda x: x + torch.tensor([0.5, 1, 1, 1, 1, 2.0]), True),
    "types": (lambda x: (x.to(torch.float64) * 2).float() + x.int().float(), True),
    "masked": (lambda x: x.masked_fill(x > 0, -1.0).triu().clamp(min=-0.5), True),
    "windows": (lambda x: functional.interpolate(x, scale_factor=2.0, mode="linear"), True),
    "attention": (lambda x: functional.scaled_dot_product_attention(*[x[:, None]] * 3), True),
    "changed in place": (lambda x: (x * 2).add_(1).relu_(), False),
    "a part changed in place": (lambda x: x.clone().index_fill_(1, torch.tensor([0]), 7.0), False),
    "returned twice": (lambda x: ((y := x * 2), y.contiguous()), False),
    "not changed in training only": (lambda x: functional.dropout(x * 2, training=False), True),
    "branch": (branch, False),
    "sizes by values": (lambda x: x[x > 0], False),
    "gradients": (without_gradients, False),
}


def exported(module: torch.nn.Module) -> onnx_ir.Model:
    rows = torch.export.Dim("rows", min=1, max=8)
    with warnings.catch_warnings(), torch.no_grad(), without_parsing():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            module.eval(), (torch.rand(3, 4, 6),), dynamic_shapes=({0: rows},), strict=False
        )
        result = torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False)
    assert result is not None
    IdentityEliminationPass()(result.model)
    return result.model


def described(model: onnx_ir.Model) -> list[object]:
    """Return a model without the names of its nodes and values."""
    places: dict[onnx_ir.Value | None, object] = {None: None}
    rows: list[object] = []

    def place(value: onnx_ir.Value | None) -> object:
        if value is not None and value.const_value is not None:
            return value.const_value.numpy().tolist()
        return places.setdefault(value, len(places))

    for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph):
        attributes = {
            name: attribute.as_tensor().numpy().tolist()
            if attribute.type == onnx_ir.AttributeType.TENSOR
            else str(attribute.value)
            for name, attribute in node.attributes.items()
            if attribute.type != onnx_ir.AttributeType.GRAPH
        }
        scopes = str(node.metadata_props.get("pkg.torch.onnx.name_scopes")).rsplit(",", 1)[0]
        source = str(node.metadata_props.get("pkg.torch.onnx.stack_trace"))
        source = re.sub(r"<eval_with_key>\.\d+", "", source)  # numbered within the process
        inputs = [place(each) for each in node.inputs]
        outputs = [(place(each), str(each.shape), str(each.dtype)) for each in node.outputs]
        rows.append((node.op_type, inputs, outputs, attributes, scopes, source))
    return [*rows, [place(each) for each in model.graph.outputs]]


@pytest.fixture
def wholes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the programs that torch has traced again."""
    seen: list[object] = []
    whole = _fx_passes.decompose_with_registry

    def counted(program: Any, registry: Any) -> Any:
        seen.append(program)
        return whole(program, registry)

    monkeypatch.setattr(_fx_passes, "decompose_with_registry", counted)
    return seen


# Further samples of what the others show.
_MORE = (
    *("calls that repeat", "split unequally", "einsum", "types", "masked", "windows"),
    *("a part changed in place", "not changed in training only", "gradients"),
    *("statistics", "returned twice", "sizes"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough) if n in _MORE else n for n in PROGRAMS]
)
@pytest.mark.sampled(3)
def test_the_graph_is_the_same(name: str, wholes: list[object]) -> None:
    function, local = PROGRAMS[name]
    expected = described(exported(Computes(function)))
    wholes.clear()
    with decomposing_locally():
        found = described(exported(Computes(function)))
    assert found == expected
    assert (not wholes) == local


@pytest.mark.thorough
def test_a_program_that_changes_a_buffer_is_left_to_torch(wholes: list[object]) -> None:
    with decomposing_locally():
        exported(Counts(lambda x: x))
    assert wholes


def test_the_exporter_is_restored() -> None:
    before = _fx_passes.decompose_with_registry
    with pytest.raises(KeyError), decomposing_locally():
        raise KeyError
    assert _fx_passes.decompose_with_registry is before
