"""Rewrites torch.export's program to compute in float16, except for the modules that stay in
float32.

Each node keeps its name, so the values of both programs can be compared. Inputs and outputs keep
the contract's types.
"""

import dataclasses
import math
import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from convkit.protocol.float_limits import LIMITS
from convkit.protocol.messages import LowPrecision
from convkit.protocol.module_patterns import matches
from convkit.runtimes.coreai.traced_program import computed_nodes, module_of, origin_of
from convkit.worker.building.operation_origin import OperationOrigin

_WIDE = (torch.float32, torch.float64)
_CAST = torch.ops.aten._to_copy.default  # noqa: SLF001 - the operator's name
# What counts is computed in float32: float16 skips whole numbers beyond 2048.
_COUNTING = (torch.ops.aten.arange.start_step, torch.ops.aten.arange.default)
_LARGEST = LIMITS["float16"].largest
# What a cast takes over from the node that reads it.
_ORIGIN = ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn")
# Where operators take an element type.
_TYPE = "dtype"


@dataclasses.dataclass(frozen=True)
class LargeConstant:
    """A number that float16 cannot hold, where the program reads it."""

    origin: OperationOrigin
    value: float


def lowered(
    program: ExportedProgram, precision: LowPrecision, root: str | None = None
) -> tuple[LargeConstant, ...]:
    """Rewrite a program in place; return the finite numbers beyond float16's range that it reads.

    With `precision.saturate`, those become the largest value of float16, otherwise infinity.
    """
    return _Lowering(program, precision, root).run()


class _Lowering:
    def __init__(self, program: ExportedProgram, precision: LowPrecision, root: str | None) -> None:
        self._program = program
        self._precision = precision
        self._root = root
        self._casts: dict[tuple[Node, torch.dtype], Node] = {}
        self._large: list[LargeConstant] = []
        (returned,) = program.graph.output_node().args
        self._declared = [_type(each) for each in returned]

    def run(self) -> tuple[LargeConstant, ...]:
        graph = self._program.graph
        self._lower_constants()
        for node in list(computed_nodes(self._program)):
            if node.target is operator.getitem:
                whole, place = node.args
                node.meta["val"] = whole.meta["val"][place]
            else:
                self._lower(graph, node)
        self._restore_outputs(graph)
        graph.lint()
        self._program.graph_module.recompile()
        return tuple(self._large)

    def _type_of(self, node: Node) -> torch.dtype:
        kept = any(matches(each, module_of(node)) for each in self._precision.patterns)
        whole = node.target in _COUNTING or not _is_of_tensors(node)  # a branch or a loop
        return torch.float32 if kept or whole else torch.float16

    def _lower_constants(self) -> None:
        """Store weights that only float16 computations read in float16."""
        signature = self._program.graph_signature
        placeholders = {n.name: n for n in self._program.graph.nodes if n.op == "placeholder"}
        mutated = set(signature.buffers_to_mutate.values())
        for spec in signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT or spec.target is None or spec.target in mutated:
                continue
            is_wide = isinstance(node.meta["val"], torch.Tensor) and node.meta["val"].dtype in _WIDE
            if not is_wide or any(self._type_of(each) != torch.float16 for each in node.users):
                continue
            stored = (
                self._program.constants
                if spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False
                else self._program.state_dict
            )
            values = stored[spec.target].detach()
            stored[spec.target] = self._halved(values, node)
            node.meta["val"] = _retyped(node.meta["val"], torch.float16)

    def _halved(self, values: torch.Tensor, node: Node) -> torch.Tensor:
        finite = values[values.isfinite()]
        if finite.numel() and float(finite.abs().max()) > _LARGEST:
            extreme = float(finite[finite.abs().argmax()])
            reader = next(iter(node.users))
            self._large.append(LargeConstant(origin_of(reader, self._root), extreme))
            if self._precision.saturate:
                clipped = values.clamp(-_LARGEST, _LARGEST)
                values = torch.where(values.isfinite(), clipped, values)
        return values.to(torch.float16)

    def _lower(self, graph: Graph, node: Node) -> None:
        wanted = self._type_of(node)
        reads_floats = False

        def cast(argument: Node) -> Node:
            nonlocal reads_floats
            value = argument.meta.get("val")
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return argument
            reads_floats = True
            return argument if value.dtype == wanted else self._cast(graph, argument, wanted, node)

        node.args = torch.fx.node.map_arg(node.args, cast)
        node.kwargs = torch.fx.node.map_arg(node.kwargs, cast)
        if wanted == torch.float16:
            node.args = self._in_range(node.args, node)
            node.kwargs = self._in_range(node.kwargs, node)
        dtype = node.kwargs.get(_TYPE)
        if dtype in _WIDE:
            node.kwargs = {**node.kwargs, _TYPE: wanted}
        elif dtype is not None:
            return
        if reads_floats or dtype in _WIDE:
            node.meta["val"] = _retyped(node.meta["val"], wanted)
        # Integers that are divided become float32, which readers of float16 cast.

    def _cast(self, graph: Graph, value: Node, dtype: torch.dtype, reader: Node) -> Node:
        """Return a value in another type, cast once."""
        if (value, dtype) not in self._casts:
            where = value.next if value.op == "call_function" else reader
            with graph.inserting_before(where):
                made = graph.call_function(_CAST, (value,), {"dtype": dtype})
            # Where the value is made, so that earlier readers find it defined.
            made.meta = {key: reader.meta[key] for key in _ORIGIN if key in reader.meta}
            made.meta["val"] = _retyped(value.meta["val"], dtype)
            self._casts[value, dtype] = made
        return self._casts[value, dtype]

    def _in_range(self, given: Any, node: Node) -> Any:  # noqa: ANN401 - a node's arguments
        """Return a node's arguments with numbers that float16 can hold."""
        if isinstance(given, float) and math.isfinite(given) and abs(given) > _LARGEST:
            self._large.append(LargeConstant(origin_of(node, self._root), given))
            return math.copysign(_LARGEST if self._precision.saturate else math.inf, given)
        if isinstance(given, tuple | list):
            return type(given)(self._in_range(each, node) for each in given)
        if isinstance(given, dict):
            return {name: self._in_range(each, node) for name, each in given.items()}
        return given

    def _restore_outputs(self, graph: Graph) -> None:
        """Let outputs, and states, have the types that they had."""
        end = graph.output_node()
        values = list(end.args[0])
        for place, spec in enumerate(self._program.graph_signature.output_specs):
            value, wanted = values[place], self._declared[place]
            if wanted is None or not isinstance(value, Node) or _type(value) == wanted:
                continue
            values[place] = self._cast(graph, value, wanted, value)
            spec.arg.name = values[place].name
        end.args = (tuple(values),)


def _is_of_tensors(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)  # noqa: SLF001 - torch's own type


def _type(value: object) -> torch.dtype | None:
    """Return the type of a node's floats; None for anything else."""
    made = value.meta.get("val") if isinstance(value, Node) else None
    if not isinstance(made, torch.Tensor) or not made.is_floating_point():
        return None
    return made.dtype


def _retyped(value: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401 - what a node computes
    """Return what a node computes with its wide floats in another type."""
    if isinstance(value, tuple | list):
        return type(value)(_retyped(each, dtype) for each in value)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(dtype)
    return value
