"""Makes onnxscript's rewrite rules linear in the nodes of a graph.

For a rule with several output nodes, its matcher lists the whole graph for each node, before it
looks at that node's operator (onnxscript 0.7, `rewriter._matcher.SimplePatternMatcher.match`): a
graph of 50,000 nodes is walked 50,000 times for each such rule.
"""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def operators_first() -> Iterator[None]:
    """Let rules look at a node's operator before anything else, inside the block.

    The first node of a match must have the pattern's first operator, so the same rules apply to the
    same nodes. Releases of onnxscript with other matchers are left alone.
    """
    try:
        from onnxscript.rewriter._basics import MatchResult
        from onnxscript.rewriter._matcher import SimplePatternMatcher
    except ImportError:
        yield
        return
    original = SimplePatternMatcher.match

    def match(self: Any, model: object, graph: object, node: Any, **options: Any) -> Any:  # noqa: ANN401 - onnxscript's
        roots = getattr(self.pattern, "output_nodes", ())
        operator = getattr(roots[0], "op", None) if roots else None
        if operator is not None and not operator.matches(node.op_type):
            return MatchResult().fail("the operator differs")
        return original(self, model, graph, node, **options)

    SimplePatternMatcher.match = match
    try:
        yield
    finally:
        SimplePatternMatcher.match = original
