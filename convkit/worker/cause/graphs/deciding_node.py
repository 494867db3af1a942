"""Finds the node that decides whether something goes wrong with a graph, such as that it crashes
the process that opens it, by cutting the graph.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.node_modules import module_path
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.graph.one_node_models import identity
from convkit.worker.graph.typed_graph import with_types

# Says of a file whether nothing is wrong with it.
IsWell = Callable[[Path], bool]


@dataclasses.dataclass(frozen=True)
class DecidingNode:
    """The last node of the shortest beginning of a graph with which something is wrong. `before`
    are the other modules whose results it reads, nearest first; `source` is its line, if known.
    """

    name: str
    operator: str
    module: str
    before: tuple[str, ...] = ()
    source: str | None = None


def deciding_node(model: Path, is_well: IsWell) -> DecidingNode | None:
    """Return the node without which nothing is wrong any more; None if the search fails, because
    shorter graphs are treated differently, or a graph that computes nothing is not well either.
    Asks once per halving. Cut graphs are written next to the model, for their weights.
    """
    cut = model.with_name("cut.onnx")
    count = len(list(ir.load(model).graph))
    types = _types(model)

    def fails(length: int) -> bool:
        _write_beginning(model, length, cut, types)
        return not is_well(cut)

    right, wrong = 0, count
    if not fails(wrong):
        return None
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if fails(middle):
            wrong = middle
        else:
            right = middle
    if right == 0:  # no beginning was well: is it the node?
        ir.save(identity(ir.load(model)), cut)
        if not is_well(cut):
            return None
    node = list(ir.load(model).graph)[wrong - 1]
    return DecidingNode(
        node.name or "",
        node.op_type,
        module_path(node),
        _modules_before(node),
        node.metadata_props.get(SOURCE_KEY),
    )


def _modules_before(node: ir.Node) -> tuple[str, ...]:
    """Return the modules that results come from, past further nodes of the node's own module and
    of the root ("."), whose casts are between modules.
    """
    found: dict[str, None] = {}
    reached, seen = [node], {node}
    while reached:
        producers = [
            made
            for each in reached
            for value in each.inputs
            if value is not None and (made := value.producer()) is not None and made not in seen
        ]
        seen.update(producers)
        own = ("", module_path(node))
        found |= dict.fromkeys(
            module_path(each) or "."
            for each in producers
            if module_path(each) != module_path(node)
            and (module_path(each) or each.op_type != "Cast")
        )
        reached = [each for each in producers if module_path(each) in own]
    return tuple(found)


def _types(model: Path) -> dict[str, tuple[ir.TypeProtocol | None, ir.Shape | None]]:
    """Return the types and shapes of the main graph's results, by name, where they are known."""
    typed = with_types(ir.load(model))
    return {
        value.name: (value.type, value.shape)
        for node in typed.graph
        for value in node.outputs
        if value.name and value.type is not None
    }


def _write_beginning(
    model: Path,
    length: int,
    destination: Path,
    types: dict[str, tuple[ir.TypeProtocol | None, ir.Shape | None]],
) -> None:
    """Write the first nodes of a graph; what none of them reads becomes its outputs. Readers that
    infer nothing are given their types.
    """
    whole = ir.load(model)
    graph = whole.graph
    nodes = list(graph)
    kept = nodes[:length]
    graph.outputs.clear()
    for node in reversed(nodes[length:]):
        graph.remove(node, safe=True)
    graph.outputs.extend(
        value for node in kept for value in node.outputs if value.name and not value.uses()
    )
    for value in graph.outputs:
        if value.type is None and value.name in types:
            value.type, value.shape = types[value.name]
    ir.save(whole, destination)
