"""Loads torch's table of ONNX translations without parsing their source.

onnxscript parses the source of each of its 550 functions for the domain that they all share, which
takes longer than to trace a small model.
"""

import contextlib
from collections.abc import Iterator
from typing import Any


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
