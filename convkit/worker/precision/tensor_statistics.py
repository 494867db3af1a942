"""Adds statistics of a graph's tensors as extra outputs: each tensor is reduced to numbers inside
the graph.

All numbers of the main graph are returned as one vector. Those of an If's branch are a separate
vector, with a flag for whether the branch ran; the body of a Loop or Scan returns one row per
iteration.

onnxruntime's default order runs the model first and the reductions afterwards, which keeps every
tensor alive (4.5 times the memory on BERT-base). `open_session` therefore requests an order in
which a reduction runs as soon as its tensor exists.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import (
    add_constant,
    all_names,
    attribute_graphs,
    free_name,
)
from convkit.worker.graph.operators.formulas import Attributes, FormulaWriter
from convkit.worker.runtime_interface.registered_operators import register_libraries

if TYPE_CHECKING:
    import onnxruntime

# max, min, sum: as usual; any non-finite element makes the sum non-finite, while max and min may
# miss NaN · smallest: the smallest nonzero magnitude (infinity if there is none) · nonfinite: the
# number of NaN or infinite elements · finite_max, finite_min: over the finite elements and zero.
Statistic = Literal["max", "min", "sum", "smallest", "nonfinite", "finite_max", "finite_min"]
_COMBINE: dict[str, Callable[[np.ndarray], np.generic]] = {
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "smallest": np.min,
    "nonfinite": np.sum,
    "finite_max": np.max,
    "finite_min": np.min,
}
# Operators whose output contains exactly the values of their first input.
MOVING_OPERATORS = frozenset(
    {"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)
_PREFIX = "convkit.statistics"

Key = tuple[str, str]  # the tensor's name, the statistic
_RAN: Key = ("", "ran")


@dataclasses.dataclass(frozen=True)
class StatisticsLayout:
    """The structure of the extra outputs: for each output, the keys of its last axis."""

    outputs: Mapping[str, tuple[Key, ...]]

    def read(self, results: Mapping[str, np.ndarray]) -> dict[Key, float]:
        """Return the number for every key; keys of branches and bodies that did not run are
        absent.
        """
        numbers: dict[Key, float] = {}
        for output, keys in self.outputs.items():
            rows = results[output].reshape(-1, len(keys))
            ran = np.ones(len(rows), dtype=bool)
            if _RAN in keys:
                ran = rows[:, keys.index(_RAN)] != 0
            for column, (name, statistic) in enumerate(keys):
                if (name, statistic) != _RAN and ran.any():
                    with np.errstate(invalid="ignore"):
                        numbers[name, statistic] = float(_COMBINE[statistic](rows[ran, column]))
        return numbers


_NOT_FINITE = "IsNaN(Sub(x, x))"  # x - x is zero for finite elements and NaN for all others
# A statistic of a vector, as a vector of one element.
_FORMULAS: dict[Statistic, str] = {
    "max": "ReduceMax(x, keepdims=1)",
    "min": "ReduceMin(x, keepdims=1)",
    "sum": "ReduceSum(x, keepdims=1)",
    # Not Equal, which has floats only from opset 11 on. NaN counts as true.
    "smallest": "ReduceMin(Where(Cast(Abs(x), to=9), Abs(x), infinity), keepdims=1)",
    "nonfinite": f"ReduceSum(Cast({_NOT_FINITE}, to=1), keepdims=1)",
    "finite_max": f"ReduceMax(Where({_NOT_FINITE}, zero, x), keepdims=1)",
    "finite_min": f"ReduceMin(Where({_NOT_FINITE}, zero, x), keepdims=1)",
}
_CONSTANTS = {"zero": 0.0, "infinity": np.inf}


@dataclasses.dataclass
class _Scope:
    """The numbers collected in one graph: one-element vectors, with their keys."""

    graph: ir.Graph
    parts: list[ir.Value] = dataclasses.field(default_factory=list)
    keys: list[Key] = dataclasses.field(default_factory=list)


class _Formula(FormulaWriter[ir.Value]):
    """Writes a formula's nodes to a list; its names are constants that all reductions share."""

    def __init__(self, reductions: "Reductions", nodes: list[ir.Node]) -> None:
        self._reductions = reductions
        self._nodes = nodes

    def operand(self, operator: str, place: int, name: str) -> list[ir.Value]:
        del operator, place
        return [self._reductions.constant(name, np.array(_CONSTANTS[name], np.float32))]

    def written(
        self, operator: str, operands: list[ir.Value], attributes: Attributes, inner: str
    ) -> ir.Value:
        del inner
        boolean = operator == "IsNaN" or attributes.get("to") == ir.DataType.BOOL
        kind = ir.DataType.BOOL if boolean else ir.DataType.FLOAT
        return self._reductions.op(self._nodes, operator, operands, attributes, kind)


class Reductions:
    """Adds reductions to a model, in place; `finish` joins them into outputs."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.names = all_names(model)
        self.scopes: dict[ir.Graph, _Scope] = {}
        self.constants: dict[str, ir.Value] = {}

    def add(
        self, value: ir.Value, statistics: Iterable[Statistic], *, named: str | None = None
    ) -> None:
        """Reduce a float tensor, right behind its producer, under its own or another name."""
        graph = value.graph
        assert graph is not None
        scope = self.scopes.setdefault(graph, _Scope(graph))
        nodes: list[ir.Node] = []
        source = value
        if value.dtype != ir.DataType.FLOAT:
            value = self.op(nodes, "Cast", [value], {"to": int(ir.DataType.FLOAT)})
        # A vector's reduction is a vector of one element, which needs no further node to be joined
        # with the others.
        everything = self.constant("vector", np.array([-1], np.int64))
        vector = self.op(nodes, "Reshape", [value, everything])
        for statistic in statistics:
            written = _Formula(self, nodes).compute(_FORMULAS[statistic], x=vector)
            scope.parts.append(written)
            scope.keys.append((named or source.name or "", statistic))
        self.insert(graph, source, nodes)

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Return a constant of the main graph, which is also visible in subgraphs."""
        if name not in self.constants:
            unique = free_name(f"{_PREFIX}.{name}", self.names)
            self.constants[name] = add_constant(self.model.graph, unique, array)
        return self.constants[name]

    def op(
        self,
        nodes: list[ir.Node],
        op_type: str,
        inputs: list[ir.Value],
        attributes: Mapping[str, int] | None = None,
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        name = free_name(f"{_PREFIX}.{len(self.names)}", self.names)
        output = ir.Value(name=name, type=ir.TensorType(dtype))
        given = [ir.AttrInt64(key, number) for key, number in (attributes or {}).items()]
        nodes.append(ir.Node("", op_type, inputs, given, outputs=[output], name=name))
        return output

    def insert(self, graph: ir.Graph, value: ir.Value, nodes: list[ir.Node]) -> None:
        producer = value.producer()
        if producer is not None:
            graph.insert_after(producer, nodes)
        elif len(graph):
            graph.insert_before(graph[0], nodes)
        else:
            graph.extend(nodes)

    def finish(self) -> StatisticsLayout:
        """Join the numbers into outputs of the model; return their layout."""
        outputs: dict[str, tuple[Key, ...]] = {}
        main = self.model.graph
        for node in list(main):
            bodies = [
                body
                for attribute in node.attributes.values()
                for body in attribute_graphs(attribute)
            ]
            for scope in [self.scopes.pop(body) for body in bodies if body in self.scopes]:
                keys = self.lift(node, bodies, scope)
                main.outputs.append(node.outputs[-1])
                outputs[node.outputs[-1].name or ""] = keys
        if main in self.scopes:
            scope = self.scopes.pop(main)
            nodes: list[ir.Node] = []
            main.outputs.append(self.op(nodes, "Concat", scope.parts, {"axis": 0}))
            main.outputs[-1].shape = ir.Shape([len(scope.keys)])
            main.extend(nodes)
            outputs[main.outputs[-1].name or ""] = tuple(scope.keys)
        assert not self.scopes, "tensors were measured deeper than one subgraph"
        return StatisticsLayout(outputs)

    def lift(self, node: ir.Node, bodies: list[ir.Graph], scope: _Scope) -> tuple[Key, ...]:
        """Add an output to a node for the numbers collected in one of its bodies; other branches
        return zeros.
        """
        keys = (*scope.keys, _RAN)
        for body in bodies:
            nodes: list[ir.Node] = []
            if body is scope.graph:
                flag = self.constant("flag", np.ones(1, np.float32))
                vector = self.op(nodes, "Concat", [*scope.parts, flag], {"axis": 0})
            else:
                absent = self.constant(f"absent.{len(keys)}", np.zeros(len(keys), np.float32))
                vector = self.op(nodes, "Identity", [absent])
            vector.shape = ir.Shape([len(keys)])
            body.extend(nodes)
            body.outputs.append(vector)
        node.resize_outputs(len(node.outputs) + 1)
        for name in ("scan_output_axes", "scan_output_directions"):  # one entry for each output
            if (given := node.attributes.get(name)) is not None:
                node.attributes[name] = ir.AttrInt64s(name, [*given.as_ints(), 0])
        output = node.outputs[-1]
        output.name = free_name(f"{_PREFIX}.{len(self.names)}", self.names)
        output.type = ir.TensorType(ir.DataType.FLOAT)
        output.shape = ir.Shape([len(keys)] if node.op_type == "If" else [None, len(keys)])
        return keys


def measurable_graphs(model: ir.Model) -> tuple[list[ir.Graph], list[ir.Graph]]:
    """Return the graphs whose tensors can be measured, and the subgraphs nested too deeply.

    A body inside a body would need outputs of varying length, so it is skipped.
    """
    main = model.graph
    near = [
        body
        for node in main
        for attribute in node.attributes.values()
        for body in attribute_graphs(attribute)
    ]
    deep = [graph for graph in main.subgraphs() if graph is not main and graph not in near]
    return [main, *near], deep


def open_session(
    model: ir.Model | Path, folder: Path | None, threads: int | None
) -> "onnxruntime.InferenceSession":
    """Open a model or model file on the CPU, executed in the graph's order to keep memory low.

    `folder` contains a model's external weights; a file's are next to it.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    # Fused nodes are numbered last and would run last; with every tensor measured, there is little
    # to fuse anyway.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Memory patterns are planned for the first run's shapes and held in addition to its
    # allocations, but cases differ in shape.
    options.enable_mem_pattern = False
    # To plan which tensor takes over whose memory, onnxruntime compares each with all that are
    # free: minutes for the ten thousand nodes of a detector's statistics. Tensors are freed after
    # their last use either way, and the largest amount of memory measured is the same.
    options.enable_mem_reuse = False
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    if folder is not None:
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(folder.resolve())
        )
    register_libraries(options)
    source = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
