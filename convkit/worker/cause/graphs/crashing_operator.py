"""Finds the operator with which a graph crashes the process that opens it, by cutting the graph."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.node_modules import module_path

# Opens a file in its own process; returns whether that process survived.
Survives = Callable[[Path], bool]


@dataclasses.dataclass(frozen=True)
class CrashingNode:
    """The last node of the shortest beginning of a graph that crashes. `before` are the other
    modules whose results it reads, nearest first.
    """

    name: str
    operator: str
    module: str
    before: tuple[str, ...] = ()


def crashing_node(model: Path, survives: Survives) -> CrashingNode | None:
    """Return the node without which a graph's beginning no longer crashes; None if the search
    fails, because shorter graphs are treated differently. Needs a process per halving. Cut graphs
    are written next to the model, for their weights.
    """
    cut = model.with_name("cut.onnx")
    count = len(list(ir.load(model).graph))

    def crashes(length: int) -> bool:
        _write_beginning(model, length, cut)
        return not survives(cut)

    survived, crashed = 0, count
    if not crashes(crashed):
        return None
    while crashed - survived > 1:
        middle = (survived + crashed) // 2
        if crashes(middle):
            crashed = middle
        else:
            survived = middle
    node = list(ir.load(model).graph)[crashed - 1]
    return CrashingNode(node.name or "", node.op_type, module_path(node), _modules_before(node))


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
