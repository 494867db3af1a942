"""Promotes element types in a traced program without running all of it again.

To make promotions explicit, torch's ONNX exporter runs the whole program once more, for the types
of all values. The trace has noted them already, so only calls whose arguments change are run.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node

# The release whose internals this follows, and with which its graphs were compared.
_TORCH = "2.13."
_VALUES = (FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)


@contextlib.contextmanager
def reading_known_types() -> Iterator[None]:
    """Let torch's ONNX exporter read the types of values that the trace noted, inside the block.

    Programs that lack some, branch, or compute sizes from values are run by torch, and so are all
    programs under other releases of torch.
    """
    if not str(torch.__version__).startswith(_TORCH):
        yield
        return
    from torch.onnx._internal.fx.passes import type_promotion

    running = type_promotion._TypePromotionInterpreter  # noqa: SLF001 - no public name

    class Reading(running):  # type: ignore[misc, valid-type] # torch has no types for it
        """Inserts promotions as torch does; reads results where torch computes them again."""

        def __init__(self, module: GraphModule, table: object) -> None:
            super().__init__(module, table)
            self._known = set(module.graph.nodes) if _notes_all(module) else set()

        def run_node(self, node: Node) -> Any:  # noqa: ANN401 - whatever the node computes
            if node.op != "call_function" or node not in self._known:
                return super().run_node(node)
            with self._set_current_node(node):
                rule = type_promotion.get_type_promotion_rule(node, self.type_promotion_table)
                if rule is not None:
                    self._maybe_promote_node(node, rule)  # runs what it changes
            return node.meta.get("val")

    type_promotion._TypePromotionInterpreter = Reading  # noqa: SLF001 - as above
    try:
        yield
    finally:
        type_promotion._TypePromotionInterpreter = running  # noqa: SLF001 - as above


def _notes_all(module: GraphModule) -> bool:
    """Return whether the trace noted all values, and running a call again has no effect."""
    return all(_is_noted(node) for node in module.graph.nodes)


def _is_noted(node: Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    if node.op != "call_function" or "unbacked_bindings" in node.meta:
        return False
    if isinstance(node.target, OpOverload) and not node.target._schema.returns:  # noqa: SLF001 - no public name
        return True  # an assertion
    value = node.meta.get("val")
    several = value if isinstance(value, (tuple, list)) else (value,)
    return all(isinstance(each, _VALUES) for each in several)
