"""The functions and classes of a Python file that may return a model, found without running it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# What a file that builds models also has.
_OTHER = re.compile(
    r"example|input|sample|(^|_)(test|main|train|parse|export|load_data)", re.IGNORECASE
)
# Recipes of a function with this name have the file's.
_USUAL = "build"


def model_callables(file: Path) -> list[str]:
    """Return the names that can be called without arguments and may return a module, the last
    first: a file's helpers usually precede what uses them. Classes that another class of the file
    uses are left out. Empty for a file that cannot be read.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    found: list[ast.ClassDef | ast.FunctionDef] = [*_module_classes(tree), *_functions(tree)]
    return [node.name for node in sorted(found, key=lambda node: -node.lineno)]


def draft_name(file: Path, name: str) -> str:
    """Return the name of the recipe for a file's callable: the file's, if nothing else in it may be
    a model, else one of its own.
    """
    others = [each for each in model_callables(file) if each != name]
    return file.stem if not others or name == _USUAL else f"{file.stem}-{name}"


def all_callables(file: Path) -> list[str]:
    """Return a file's public functions and classes, the last first; none if it cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [
        node.name
        for node in reversed(tree.body)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if not name.startswith("_"):
                returns = any(
                    isinstance(each, ast.Return) and each.value is not None
                    for each in ast.walk(node)
                )
                if returns and not _OTHER.search(name) and not _required(node.args):
                    yield node


def _module_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    modules: dict[str, ast.ClassDef] = {}
    for node in classes:
        bases = {_last_name(base) for base in node.bases}
        if any(base.endswith("Module") or base in modules for base in bases) or any(
            isinstance(base, ast.Attribute) and _last_name(base.value) == "nn"
            for base in node.bases
        ):
            modules[node.name] = node
    for name, node in modules.items():
        used = any(
            isinstance(each, ast.Name) and each.id == name
            for other in classes
            if other is not node
            for each in ast.walk(other)
        )
        starts = [f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
        if not used and not name.startswith("_") and not any(_required(f.args, 1) for f in starts):
            yield node


def _required(arguments: ast.arguments, bound: int = 0) -> bool:
    """Return whether a function has parameters without a default, beside the first `bound`."""
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults) - bound
    return positional > 0 or any(default is None for default in arguments.kw_defaults)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
