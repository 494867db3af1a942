"""Makes onnxscript's rewrite rules fast, and linear in the nodes of a graph.

onnxscript 0.7 tries about 100 rules on each node, and sets a match up before it looks at the node's
operator (`rewriter._rewrite_rule.RewriteRule.try_rewrite`). For a rule with several output nodes,
the matcher even lists the whole graph first (`rewriter._matcher.SimplePatternMatcher.match`): a
graph of 50,000 nodes is walked 50,000 times for each such rule.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def operators_first() -> Iterator[None]:
    """Let rules look at a node's operator before anything else, inside the block.

    The first node of a match must have the pattern's first operator, so the same rules apply to the
    same nodes. Releases of onnxscript with other rules or matchers are left alone.
    """
    try:
        from onnxscript.rewriter._matcher import SimplePatternMatcher
        from onnxscript.rewriter._rewrite_rule import RewriteRule

        original = RewriteRule.try_rewrite
    except (ImportError, AttributeError):
        yield
        return
    # For each rule, the operators it was asked about, and whether its pattern can begin with them.
    asked: dict[Any, dict[str, bool]] = {}

    def try_rewrite(self: Any, model: object, graph: object, node: Any, **options: Any) -> Any:  # noqa: ANN401 - onnxscript's
        operators = asked.setdefault(self, {})
        applies = operators.get(node.op_type)
        if applies is None:
            matcher = getattr(self, "_matcher", None)
            first = _first_operator(matcher) if type(matcher) is SimplePatternMatcher else None
            applies = operators[node.op_type] = first is None or first(node.op_type)
        return original(self, model, graph, node, **options) if applies else None

    RewriteRule.try_rewrite = try_rewrite
    try:
        yield
    finally:
        RewriteRule.try_rewrite = original


def _first_operator(matcher: Any) -> Callable[[str], bool] | None:  # noqa: ANN401 - onnxscript's
    """Return what tells whether a match can begin at an operator; None if it can at any."""
    roots = getattr(matcher.pattern, "output_nodes", ())
    operator = getattr(roots[0], "op", None) if roots else None
    return getattr(operator, "matches", None)


@contextlib.contextmanager
def without_parsing() -> Iterator[None]:
    """Let onnxscript parse a translation only if more than its domain is asked for, inside the
    block. Releases that do without a parser, or keep the domain elsewhere, stay as they are.
    """
    from onnxscript._internal import values

    function = getattr(values, "TracedOnnxFunction", None)
    parsed = getattr(function, "function_ir", None)
    if function is None or not isinstance(parsed, property):
        yield
        return

    def lazily(self: Any) -> Any:  # noqa: ANN401 - onnxscript's, or what stands in for it
        domain = getattr(getattr(self, "_opset", None), "domain", None)
        whole = parsed.__get__
        return whole(self) if domain is None else _Unparsed(domain, lambda: whole(self))

    function.function_ir = property(lazily)
    try:
        yield
    finally:
        function.function_ir = parsed


class _Unparsed:
    """A function's domain; everything else is read from its source."""

    def __init__(self, domain: str, parse: Any) -> None:  # noqa: ANN401 - a function without types
        self.domain = domain
        self._parse = parse

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an attribute of any type
        return getattr(self._parse(), name)
