"""Finds the node that decides whether something goes wrong with a graph, such as that it crashes
the process that opens it, by cutting the graph.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.node_modules import module_path
from convkit.worker.graph.node_origins import SOURCE_KEY

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
    shorter graphs are treated differently. Asks once per halving. Cut graphs are written next to
    the model, for their weights.
    """
    cut = model.with_name("cut.onnx")
    count = len(list(ir.load(model).graph))

    def fails(length: int) -> bool:
        _write_beginning(model, length, cut)
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
    node = list(ir.load(model).graph)[wrong - 1]
    return DecidingNode(
        node.name or "",
        node.op_type,
        module_path(node),
        _modules_before(node),
        node.metadata_props.get(SOURCE_KEY),
    )


def _modules_before(node: ir.Node) -> tuple[str, ...]:
    """Return the modules that results come from, past further nodes of the node's own module."""
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
        found |= dict.fromkeys(path for each in producers if (path := module_path(each)) not in own)
        reached = [each for each in producers if module_path(each) in own]
    return tuple(found)


def _write_beginning(model: Path, length: int, destination: Path) -> None:
    """Write the first nodes of a graph; what none of them reads becomes its outputs."""
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
    ir.save(whole, destination)
