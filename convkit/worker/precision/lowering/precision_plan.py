"""A precision plan and its application to a graph: each node's element type and the reason for
it.
"""

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.module_patterns import (
    UnmatchedPattern,
    matches,
    operation_path,
    unmatched_patterns,
)
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.precision.constant_rounding import IR_DTYPES
from convkit.worker.precision.lowering.operator_rules import operator_rule
from convkit.worker.precision.lowering.scaled_integer_products import scales_of_integer_products
from convkit.worker.precision.lowering.whole_numbers import whole_number_steps


class PlanError(ValueError):
    """A precision plan requests something impossible; the message states what is possible."""


@dataclasses.dataclass(frozen=True)
class PrecisionPlan:
    """The element type of a model's arithmetic, and the modules kept in float32 (see
    `patterns`).
    """

    default: DType
    keep_float32: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise PlanError for a type to which floating-point arithmetic cannot be lowered."""
        if self.default not in IR_DTYPES:
            raise PlanError(
                f"a precision plan's default is float16, bfloat16 or float32, not {self.default}"
            )


@dataclasses.dataclass(frozen=True)
class TypeChoice:
    """One node's element type. `reason` is `default`, `pattern <pattern>` or `operator <why>`."""

    dtype: DType
    reason: str


@dataclasses.dataclass(frozen=True)
class Assignment:
    """A plan applied to a graph: a choice for every node, including in subgraphs, that consumes or
    produces float32.
    """

    plan: PrecisionPlan
    choices: Mapping[ir.Node, TypeChoice]
    unmatched: tuple[UnmatchedPattern, ...]


@dataclasses.dataclass(frozen=True)
class ModuleRow:
    """One module's part of an assignment: the number of its own nodes per type, and the reasons for
    float32.
    """

    module: str
    low: int
    float32: int
    reasons: tuple[str, ...]


def assign(model: ir.Model, plan: PrecisionPlan) -> Assignment:
    """Choose an element type for every node that consumes or produces float32, in time linear in
    the graph.

    The model must have been through `prepare`. A node stays in float32 if a pattern of the plan
    matches its module or its type of operation, if the operator does not support the plan's type at
    the model's opset, or if it scales an integer product or computes with whole numbers. Raises
    PatternError.
    """
    scaling = scales_of_integer_products(model)
    counting = whole_number_steps(model)
    kept: dict[str, str | None] = {}  # the first matching pattern, by the operations' path
    choices = {}
    for node, module in nodes_with_modules(model):
        path = operation_path(module, node.op_type)
        if path not in kept:
            kept[path] = next((each for each in plan.keep_float32 if matches(each, path)), None)
        if touches_float32(node):
            exact = (
                "scales an integer product"
                if node in scaling
                else "computes with whole numbers"
                if node in counting
                else None
            )
            choices[node] = _choose(node, plan, kept[path], model.opset_imports, exact)
    return Assignment(plan, choices, unmatched_patterns(plan.keep_float32, kept))


def module_table(model: ir.Model, assignment: Assignment) -> tuple[ModuleRow, ...]:
    """Return one row for every module that owns nodes of the assignment, in graph order."""
    counts: dict[str, tuple[list[int], dict[str, None]]] = {}
    for node, path in nodes_with_modules(model):
        if (choice := assignment.choices.get(node)) is None:
            continue
        numbers, reasons = counts.setdefault(path, ([0, 0], {}))
        numbers[choice.dtype == "float32"] += 1
        if choice.dtype == "float32":
            reasons[choice.reason] = None
    return tuple(
        ModuleRow(path, low, kept, tuple(reasons))
        for path, ((low, kept), reasons) in counts.items()
    )


def touches_float32(node: ir.Node) -> bool:
    """Return True if a node consumes or produces a float32 tensor."""
    return any(
        value is not None and value.dtype == ir.DataType.FLOAT
        for value in (*node.inputs, *node.outputs)
    )


def _choose(
    node: ir.Node,
    plan: PrecisionPlan,
    pattern: str | None,
    opsets: Mapping[str, int],
    exact: str | None,
) -> TypeChoice:
    if pattern is not None:
        return TypeChoice("float32", f"pattern {pattern}")
    if plan.default == "float32":
        return TypeChoice("float32", "default")
    if exact is not None:
        return TypeChoice("float32", f"operator {node.op_type} {exact}")
    rule = operator_rule(node, opsets, plan.default)
    if rule.obstacle is not None:
        return TypeChoice("float32", f"operator {rule.obstacle}")
    return TypeChoice(plan.default, "default")
