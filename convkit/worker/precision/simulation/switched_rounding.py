"""A float32 graph with switchable rounding, per module or per value: any plan's effect, in one
session.

A value is rounded if the module that produces or consumes it is lowered, like the casts at a plan's
borders. So the outputs with one module lowered show the cost of that module's rounding, and no plan
needs its own graph. Subgraphs stay in float32 here; the simulation of the chosen plan covers them.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.messages import LowPrecision
from convkit.protocol.module_patterns import operation_path
from convkit.worker.graph.graph_traversal import (
    add_constant,
    all_names,
    attribute_graphs,
    constant_tensor,
    free_name,
)
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.session_values import run_outputs
from convkit.worker.precision.array_rounding import round_array
from convkit.worker.precision.constant_rounding import IR_DTYPES, read_tensor
from convkit.worker.precision.lowering.operator_rules import operator_rule
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.kept_nan import with_nan_kept
from convkit.worker.precision.temporary_session import TemporarySession

_SWITCHES = "convkit.low_modules"
# Larger constants are weights: they are not masks, and a second copy of them would double the
# model.
_SMALL_CONSTANT = 1 << 16


class SwitchedRounding(TemporarySession):
    """The graph, open in onnxruntime.

    `modules` are those that can be lowered: paths, with the root as an empty one.
    """

    def __init__(
        self,
        model: ir.Model,
        dtype: DType,
        *,
        saturate: bool,
        threads: int | None = None,
        by_operation: bool = False,
    ) -> None:
        """`model` is a prepared float32 model, which is not modified. `by_operation`: what is
        switched are not modules, but their types of operations.
        """
        rewriter = _Rewriter(model.clone(), PrecisionPlan(dtype), saturate=saturate)
        if by_operation:
            rewriter.module_of = {
                node: operation_path(module, node.op_type)
                for node, module in rewriter.module_of.items()
            }
        rewriter.run()
        self.modules: tuple[str, ...] = tuple(rewriter.units)
        self._outputs = [output.name or "" for output in rewriter.graph.outputs]
        super().__init__(with_nan_kept(rewriter.model), threads)

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> dict[str, np.ndarray]:
        """Return the outputs by name with the given modules lowered and all others in float32."""
        switches = np.array([module in low for module in self.modules] or [False])
        found = run_outputs(self._session, self._outputs, {**feeds, _SWITCHES: switches})
        return dict(zip(self._outputs, found, strict=True))


class SwitchedValues(TemporarySession):
    """The graph under a precision, open in onnxruntime, with each value's rounding switchable.

    `modules` are, for each value that the precision rounds, the modules with low nodes that make or
    read it, in the graph's order.
    """

    def __init__(
        self, model: ir.Model, precision: LowPrecision, *, threads: int | None = None
    ) -> None:
        """`model` is a prepared float32 model, which is not modified."""
        plan = PrecisionPlan(precision.default, precision.patterns)
        rewriter = _ValueRewriter(model.clone(), plan, saturate=precision.saturate)
        rewriter.run()
        self.modules: Mapping[str, frozenset[str]] = rewriter.touched
        self._units = list(rewriter.touched)
        self._outputs = [output.name or "" for output in rewriter.graph.outputs]
        super().__init__(with_nan_kept(rewriter.model), threads)

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> dict[str, np.ndarray]:
        """Return the outputs by name with the given values rounded and all others in float32."""
        switches = np.array([value in low for value in self._units] or [False])
        found = run_outputs(self._session, self._outputs, {**feeds, _SWITCHES: switches})
        return dict(zip(self._outputs, found, strict=True))


class _Rewriter:
    def __init__(self, model: ir.Model, plan: PrecisionPlan, *, saturate: bool) -> None:
        self.model = model
        self.graph = model.graph
        self.dtype = plan.default
        self.saturate = saturate
        self.names = all_names(model)
        self.choices = assign(model, plan).choices
        self.module_of = dict(nodes_with_modules(model))
        self.flags: dict[frozenset[str], ir.Value] = {}
        self.first: list[ir.Node] = []  # nodes that must precede everything else
        self.order = {node: index for index, node in enumerate(self.graph)}

    @cached_property
    def units(self) -> Sequence[str]:
        """What can be switched: the modules."""
        return list(
            dict.fromkeys(self.module_of[node] for node in self.graph if self.is_switchable(node))
        )

    def is_switchable(self, node: ir.Node) -> bool:
        choice = self.choices.get(node)
        bodies = [
            body for attribute in node.attributes.values() for body in attribute_graphs(attribute)
        ]
        return choice is not None and choice.dtype != "float32" and not bodies

    def run(self) -> None:
        switches = ir.Value(
            name=_SWITCHES,
            type=ir.TensorType(ir.DataType.BOOL),
            shape=ir.Shape([max(len(self.units), 1)]),
        )
        self.switches = switches
        made = [value for node in self.graph for value in node.outputs]
        values = [*self.graph.inputs, *self.graph.initializers.values(), *made]
        for value in [value for value in values if value.dtype == ir.DataType.FLOAT]:
            self.rewrite(value)
        self.graph.inputs.append(switches)
        if self.first:
            self.graph.insert_before(self.graph[0], self.first)
        self.graph.sort()

    def rewrite(self, value: ir.Value) -> None:
        """Give each of a value's consumers the rounded value if it or the producer is lowered."""
        maker = value.producer()
        makers = (
            self.low_units(maker, maker.outputs.index(value), "outputs")
            if maker is not None
            else frozenset()
        )
        places: dict[frozenset[str], list[tuple[ir.Node, int]]] = {}
        for user, index in value.uses():
            if user.graph is self.graph:
                places.setdefault(makers | self.low_units(user, index, "inputs"), []).append(
                    (user, index)
                )
            elif makers:  # in a subgraph, where the main graph's values are visible
                places.setdefault(makers, []).append((user, index))
        outputs = [index for index, output in enumerate(self.graph.outputs) if output is value]
        if makers and outputs:
            places.setdefault(makers, [])
        rounded: ir.Value | None = None
        for modules, users in places.items():
            if not modules:
                continue
            rounded = rounded or self.rounded(value)
            chosen = self.op(
                "Where",
                [self.flag(modules), rounded, value],
                value,
                after=rounded.producer() or maker,
            )
            for user, index in users:
                user.replace_input_with(index, chosen)
            if modules == makers:
                for index in outputs:
                    name = value.name
                    value.name = free_name(f"{name}.float32", self.names)
                    chosen.name = name
                    self.graph.outputs[index] = chosen

    def low_units(self, node: ir.Node, slot: int, side: str) -> frozenset[str]:
        """Return what switches the rounding of a node's slot: its module; none if the operator
        keeps it in float32.
        """
        return frozenset({self.module_of[node]}) if self.is_low(node, slot, side) else frozenset()

    def is_low(self, node: ir.Node, slot: int, side: str) -> bool:
        """Say whether the precision rounds what a node reads or makes in a slot."""
        if node.graph is not self.graph or not self.is_switchable(node):
            return False
        rule = operator_rule(node, self.model.opset_imports, self.dtype)
        needs = rule.outputs if side == "outputs" else rule.inputs
        return needs[slot] == "low"

    def flag(self, modules: frozenset[str]) -> ir.Value:
        """Return a scalar that is true if any of the modules is lowered."""
        if modules not in self.flags:
            one, *others = sorted(modules)
            if not others:
                index = self.constant(np.array(self.units.index(one), np.int64))
                self.flags[modules] = self.early("Gather", [self.switches, index])
            else:
                self.flags[modules] = self.early(
                    "Or", [self.flag(frozenset({one})), self.flag(frozenset(others))]
                )
        return self.flags[modules]

    def rounded(self, value: ir.Value) -> ir.Value:
        tensor = constant_tensor(value)
        if tensor is not None and self.saturate and tensor.size <= _SMALL_CONSTANT:
            array = round_array(read_tensor(tensor), self.dtype, saturate=True)
            return self.constant(array.astype(np.float32))
        low = self.op(
            "Cast",
            [value],
            value,
            {"to": int(IR_DTYPES[self.dtype])},
            IR_DTYPES[self.dtype],
            value.producer(),
        )
        return self.op("Cast", [low], value, {"to": int(ir.DataType.FLOAT)}, after=low.producer())

    def constant(self, array: np.ndarray) -> ir.Value:
        return add_constant(self.graph, free_name("convkit.constant", self.names), array)

    def early(self, op_type: str, inputs: list[ir.Value]) -> ir.Value:
        output = ir.Value(
            name=free_name("convkit.flag", self.names), type=ir.TensorType(ir.DataType.BOOL)
        )
        self.first.append(ir.Node("", op_type, inputs, outputs=[output], name=output.name))
        return output

    def op(
        self,
        op_type: str,
        inputs: list[ir.Value],
        like: ir.Value,
        attributes: Mapping[str, int] | None = None,
        dtype: ir.DataType = ir.DataType.FLOAT,
        after: ir.Node | None = None,
    ) -> ir.Value:
        """Return a new node's output, with the shape of another value."""
        name = free_name(f"convkit.{op_type.lower()}.{like.name}", self.names)
        output = ir.Value(name=name, type=ir.TensorType(dtype), shape=like.shape)
        given = [ir.AttrInt64(key, number) for key, number in (attributes or {}).items()]
        node = ir.Node("", op_type, inputs, given, outputs=[output], name=name)
        if after is not None:
            self.graph.insert_after(after, node)
        else:  # weights: right before their use, so that few of them exist at once
            users = [user for user, _ in like.uses() if user in self.order]
            self.graph.insert_before(
                min(users, key=self.order.__getitem__, default=self.graph[0]), node
            )
        return output


class _ValueRewriter(_Rewriter):
    """Switches each value by itself."""

    @cached_property
    def touched(self) -> dict[str, frozenset[str]]:
        """The modules of the low nodes that make or read each value that is rounded."""
        found: dict[str, set[str]] = {}
        for node in self.graph:
            slots = [("outputs", slot, value) for slot, value in enumerate(node.outputs)]
            slots += [("inputs", slot, value) for slot, value in enumerate(node.inputs) if value]
            for side, slot, value in slots:
                if value.dtype == ir.DataType.FLOAT and self.is_low(node, slot, side):
                    found.setdefault(value.name or "", set()).add(self.module_of[node])
        return {name: frozenset(modules) for name, modules in found.items()}

    @cached_property
    def units(self) -> Sequence[str]:
        """What can be switched: the values."""
        return list(self.touched)

    def low_units(self, node: ir.Node, slot: int, side: str) -> frozenset[str]:
        """Return what switches the rounding of a node's slot: the value itself."""
        value = (node.outputs if side == "outputs" else node.inputs)[slot]
        low = value is not None and value.name in self.touched and self.is_low(node, slot, side)
        return frozenset({value.name or ""}) if low and value is not None else frozenset()
