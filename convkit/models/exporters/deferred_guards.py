"""Conditions on sizes that torch.export cannot prove for every declared size, and that are true."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from convkit.tensors import Contract

# Sizes are tried one by one, up to this many combinations.
_MOST_TRIED = 4096


def without_guards(
    export: Callable[[], torch.export.ExportedProgram], contract: Contract
) -> torch.export.ExportedProgram | None:
    """Export with conditions on sizes as assertions, and remove these if they hold at every size
    of the contract's axes. Return None if one does not, or cannot be computed from sizes alone.
    """
    try:
        program = export()
    except Exception:  # noqa: BLE001 - the first export's error is the one to report
        return None
    asserted = _assertions(program)
    if not asserted or math.prod(each.max - each.min + 1 for each in contract.axes) > _MOST_TRIED:
        return None
    for sizes in _all_sizes(program, contract):
        known: dict[torch.fx.Node, Any] = {}
        try:
            if not all(_value(node.args[0], sizes, known) for node in asserted):
                return None
        except KeyError:  # it depends on more than the inputs' sizes
            return None
    drop_assertions(program)
    return program


def drop_assertions(program: torch.export.ExportedProgram) -> None:
    """Remove the assertions about sizes, and what is computed for them alone."""
    for node in _assertions(program):
        program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _assertions(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    asserting = torch.ops.aten._assert_scalar.default  # noqa: SLF001 - its only name
    return [node for node in program.graph.nodes if node.target is asserting]


def _all_sizes(
    program: torch.export.ExportedProgram, contract: Contract
) -> Iterator[Mapping[str, tuple[int, ...]]]:
    """Yield the inputs' shapes, by the program's names, for every combination of sizes."""
    names = program.graph_signature.user_inputs
    spans = (range(axis.min, axis.max + 1) for axis in contract.axes)
    for combination in itertools.product(*spans):
        chosen = dict(zip((axis.name for axis in contract.axes), combination, strict=True))
        shapes = (spec.concrete_shape(chosen) for spec in contract.inputs)
        yield dict(zip(map(str, names), shapes, strict=True))


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
