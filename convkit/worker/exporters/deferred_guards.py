"""Conditions on sizes that torch.export cannot prove for every declared size, and that are true."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import Contract, dimension_axes

# The sizes of the axes of a condition are tried one by one, up to this many combinations.
_MOST_TRIED = 4096
# Of those at which a condition fails, about so many are compared.
_MOST_COMPARED = 16


# What a traced program computes at some sizes of the axes is what its module does.
Matches = Callable[[torch.export.ExportedProgram, Mapping[str, int]], bool]


def without_guards(
    export: Callable[[], torch.export.ExportedProgram], contract: Contract, matches: Matches
) -> torch.export.ExportedProgram | None:
    """Export with conditions on sizes as assertions, and remove these if they hold at every size
    of the contract's axes, or change nothing at those compared where they do not, nor at sizes
    spread over the axes if torch has no assertions for them.

    A slice up to the end of a buffer is such a condition: torch leaves it out at the largest size,
    and asks for a size below. Return None if a condition fails elsewhere or makes a difference, or
    cannot be computed from sizes alone.
    """
    try:
        program = export()
    except Exception:  # noqa: BLE001 - the first export's error is the one to report
        return None
    asserted = _assertions(program)
    failing: list[dict[str, int]] = []
    try:
        for axes, conditions in _by_axes(asserted, program, contract).items():
            failing += _failing(conditions, axes, program, contract)
    except KeyError:  # it depends on more than the inputs' sizes, or on too many of them
        return None
    drop_assertions(program)
    # torch has no assertion for some conditions.
    compared = failing[:: max(1, len(failing) // _MOST_COMPARED)] if asserted else _spread(contract)
    compared += failing[-1:]
    return program if all(matches(program, chosen) for chosen in compared) else None


def drop_assertions(program: torch.export.ExportedProgram) -> None:
    """Remove the assertions about sizes and types, and what is computed for them alone."""
    about_types = torch.ops.aten._assert_tensor_metadata.default  # noqa: SLF001 - its only name
    found = [node for node in program.graph.nodes if node.target is about_types]
    for node in [*_assertions(program), *found]:
        program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _assertions(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    asserting = torch.ops.aten._assert_scalar.default  # noqa: SLF001 - its only name
    return [node for node in program.graph.nodes if node.target is asserting]


def _by_axes(
    asserted: Sequence[torch.fx.Node], program: torch.export.ExportedProgram, contract: Contract
) -> dict[frozenset[str], list[torch.fx.Node]]:
    """Return the conditions by the axes that each depends on.

    Raises KeyError for a condition that depends on anything else.
    """
    specs = dict(zip(_input_names(program), contract.inputs, strict=True))
    found: dict[frozenset[str], list[torch.fx.Node]] = {}
    for node in asserted:
        axes, pending, seen = set[str](), [node.args[0]], set[torch.fx.Node]()
        while pending:
            each = pending.pop()
            if not isinstance(each, torch.fx.Node) or each in seen:
                continue
            seen.add(each)
            if each.target is torch.ops.aten.sym_size.int:
                source, axis = each.args
                axes.update(dimension_axes(str(specs[str(source)].shape[int(axis)])))
            else:
                pending += each.args
        found.setdefault(frozenset(axes), []).append(node)
    return found


def _spread(contract: Contract) -> list[dict[str, int]]:
    """Return sizes from the smallest to the largest of each axis, the two smallest among them."""
    usual = {axis.name: axis.typical for axis in contract.axes}
    return [
        {**usual, axis.name: size}
        for axis in contract.axes
        for size in sorted(
            {
                min(axis.min + 1, axis.max),
                *range(axis.min, axis.max, max(1, (axis.max - axis.min) // _MOST_COMPARED)),
                axis.max,
            }
        )
    ]


def _failing(
    conditions: Sequence[torch.fx.Node],
    axes: frozenset[str],
    program: torch.export.ExportedProgram,
    contract: Contract,
) -> list[dict[str, int]]:
    """Return the sizes at which conditions on some axes fail, the other axes being smallest, of
    all that these axes have.

    Raises KeyError for too many, and for a condition that cannot be computed from sizes.
    """
    spans = [
        range(axis.min, axis.max + 1) if axis.name in axes else (axis.min,)
        for axis in contract.axes
    ]
    if math.prod(map(len, spans)) > _MOST_TRIED:
        raise KeyError(*axes)
    failing = []
    for combination in itertools.product(*spans):
        chosen = dict(zip((axis.name for axis in contract.axes), combination, strict=True))
        given = (spec.concrete_shape(chosen) for spec in contract.inputs)
        shapes = dict(zip(_input_names(program), given, strict=True))
        known: dict[torch.fx.Node, Any] = {}
        if not all(_value(node.args[0], shapes, known) for node in conditions):
            failing.append(chosen)
    return failing


def _input_names(program: torch.export.ExportedProgram) -> list[str]:
    return [str(name) for name in program.graph_signature.user_inputs]


def _value(
    given: Any,  # noqa: ANN401 - a node, or a number
    shapes: Mapping[str, tuple[int, ...]],
    known: dict[torch.fx.Node, Any],
) -> Any:  # noqa: ANN401
    """Compute a number from sizes; raises KeyError for one that depends on anything else."""
    if not isinstance(given, torch.fx.Node):
        return given
    if given not in known:
        if given.target is torch.ops.aten.sym_size.int:
            source, axis = given.args
            known[given] = shapes[str(source)][int(axis)]
        elif given.op == "call_function" and not isinstance(given.target, torch._ops.OpOverload):  # noqa: SLF001
            read = [_value(each, shapes, known) for each in given.args]
            known[given] = given.target(*read)
        else:
            raise KeyError(given.name)
    return known[given]
