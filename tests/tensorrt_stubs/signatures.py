"""Reads the signatures that pybind11 writes into docstrings, and the methods that a docstring's
example defines.
"""

import ast
import re
from collections.abc import Iterator


def overloads(doc: str) -> list[str]:
    """Return the lines of a docstring that are signatures."""
    if "Overloaded function." in doc:
        return re.findall(r"^\d+\. (.*)$", doc, re.MULTILINE)
    return doc.strip().splitlines()[:1]


def signature(text: str) -> tuple[list[tuple[str, str, str]], str] | None:
    """Parse `name(parameter: type = default, ...) -> type`: (name, type, default) of each, and the
    result's type.
    """
    match = (
        re.match(r"\w*\((.*)\) -> (.+)$", text.strip().splitlines()[0]) if text.strip() else None
    )
    if match is None:
        return None
    parameters = []
    for part in split(match[1]):
        declared, _, default = part.partition(" = ")
        name, _, kind = declared.partition(": ")
        parameters.append((name.strip(), kind.strip(), default.strip()))
    return parameters, match[2]


def split(text: str) -> Iterator[str]:
    """Split at commas that no bracket or quote encloses."""
    depth, start, quoted = 0, 0, False
    for at, character in enumerate(text):
        quoted ^= character == "'"
        if quoted:
            continue
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()


def docstring_methods(doc: str | None) -> list[ast.FunctionDef]:
    """Return the methods that a docstring's example of an implementation defines."""
    block = re.search(
        r"^( *)class \w+\(trt\.\w+\):\n((?:\1 .*\n|\s*\n)+)",
        f"{doc}\n" if doc else "",
        re.MULTILINE,
    )
    lines = re.findall(r"^\s*(def \w+\(self.*\)):", block[2], re.MULTILINE) if block else []
    parsed = [ast.parse(f"{line}: ...").body[0] for line in lines]
    return [
        node
        for node in parsed
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
    ]
