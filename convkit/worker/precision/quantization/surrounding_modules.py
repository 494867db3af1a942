"""Which modules have to stay in float32 with a module for that to matter.

A tensor is quantized if any node that makes or reads it is. To keep one in float32, such as what a
depthwise convolution returns, the layers on both sides have to be kept.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import onnx_ir as ir

from convkit.worker.graph.node_modules import nodes_with_modules

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
Step = Callable[[ir.Node], Iterator[ir.Node]]
# Steps from a module to the next layer, which an activation or a norm may lie between.
_MOST_STEPS = 4


def surrounding(model: ir.Model, modules: Collection[str]) -> list[str]:
    """Return the modules from the layers before the given ones to the layers behind them, in the
    graph's order and without those; a layer itself has none behind it.
    """
    paths = dict(nodes_with_modules(model))
    own = [node for node, path in paths.items() if path in modules]
    found = {
        paths[node]
        for start in own
        for node in (*_walk(start, _before, paths), *_behind(start, paths))
    }
    return [path for path in dict.fromkeys(paths.values()) if path in found - set(modules)]


def _behind(start: ir.Node, paths: Mapping[ir.Node, str]) -> Iterable[ir.Node]:
    return () if start.op_type in _LAYERS else _walk(start, _after, paths)


def _before(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        if value is not None and (producer := value.producer()) is not None:
            yield producer


def _after(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.outputs:
        yield from value.consumers()


def _walk(start: ir.Node, step: Step, paths: Mapping[ir.Node, str]) -> Iterator[ir.Node]:
    """Yield the nodes up to the next layers in one direction."""
    reached, seen = [start], {start}
    for _ in range(_MOST_STEPS):
        reached = [
            other
            for node in reached
            if node is start or node.op_type not in _LAYERS
            for other in step(node)
            if other in paths and other not in seen
        ]
        seen.update(reached)
        yield from reached
