"""Conditions on sizes that torch.export cannot prove for every declared size, and that are true."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from convkit.protocol.contract import Contract

# Sizes are tried one by one, up to this many combinations.
_MOST_TRIED = 4096
# Of these, the part at which a condition may fail, and how many of them are compared.
_MOST_FAILING, _MOST_COMPARED = 0.25, 16


# What a traced program computes at some sizes of the axes is what its module does.
Matches = Callable[[torch.export.ExportedProgram, Mapping[str, int]], bool]


def without_guards(
    export: Callable[[], torch.export.ExportedProgram], contract: Contract, matches: Matches
) -> torch.export.ExportedProgram | None:
    """Export with conditions on sizes as assertions, and remove these if they hold at every size
    of the contract's axes, or change nothing at the few where they do not.

    A slice up to the end of a buffer is such a condition: torch leaves it out at the largest size,
    and asks for a size below. Return None if a condition fails elsewhere or makes a difference, or
    cannot be computed from sizes alone.
    """
    try:
        program = export()
    except Exception:  # noqa: BLE001 - the first export's error is the one to report
        return None
    asserted = _assertions(program)
    if not asserted or math.prod(each.max - each.min + 1 for each in contract.axes) > _MOST_TRIED:
        return None
    failing, count = [], 0
    for chosen, shapes in _all_sizes(program, contract):
        known: dict[torch.fx.Node, Any] = {}
        count += 1
        try:
            if not all(_value(node.args[0], shapes, known) for node in asserted):
                failing.append(chosen)
        except KeyError:  # it depends on more than the inputs' sizes
            return None
    if len(failing) > _MOST_FAILING * count:
        return None
    drop_assertions(program)
    compared = failing[:: max(1, len(failing) // _MOST_COMPARED)]
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


def _all_sizes(
    program: torch.export.ExportedProgram, contract: Contract
) -> Iterator[tuple[dict[str, int], Mapping[str, tuple[int, ...]]]]:
    """Yield every combination of sizes, with the inputs' shapes by the program's names."""
    names = program.graph_signature.user_inputs
    spans = (range(axis.min, axis.max + 1) for axis in contract.axes)
    for combination in itertools.product(*spans):
        chosen = dict(zip((axis.name for axis in contract.axes), combination, strict=True))
        shapes = (spec.concrete_shape(chosen) for spec in contract.inputs)
        yield chosen, dict(zip(map(str, names), shapes, strict=True))


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
