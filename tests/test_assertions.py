"""Every test asserts something: itself, or through a function of the tests that it calls."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
FILES = {path.stem: path for path in sorted(TESTS.rglob("*.py")) if "__pycache__" not in path.parts}
Definition = ast.FunctionDef | ast.ClassDef


def test_no_test_is_without_an_assertion() -> None:
    tests = [
        (path, node)
        for path in FILES.values()
        if path.stem.startswith("test_")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert len(tests) > 3000
    silent = [
        f"{path.relative_to(TESTS)}::{node.name}"
        for path, node in tests
        if not asserts(path, node, frozenset())
    ]
    assert silent == []


def test_what_asserts_nothing_is_found() -> None:
    code = "def test_it():\n    value = [1]\n    helper(value)\n"
    (silent,) = ast.parse(code).body
    assert isinstance(silent, ast.FunctionDef)
    assert not asserts(Path(__file__), silent, frozenset())
    (loud,) = ast.parse(code.replace("helper", "test_no_test_is_without_an_assertion")).body
    assert isinstance(loud, ast.FunctionDef)
    assert asserts(Path(__file__), loud, frozenset())


def asserts(path: Path, definition: Definition, seen: frozenset[tuple[Path, str]]) -> bool:
    """Say whether a function asserts, or calls one of the tests' functions that does."""
    if (path, definition.name) in seen:
        return False
    nodes = list(ast.walk(definition))
    if any(isinstance(node, ast.Assert) for node in nodes):
        return True
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(is_assertion(call) for call in calls):
        return True
    known = names(path)
    return any(
        asserts(*known[name], seen | {(path, definition.name)})
        for call in calls
        for name in called(call)
        if name in known
    )


def is_assertion(call: ast.Call) -> bool:
    """Say whether a call asserts by itself: pytest.raises, np.testing.assert_allclose, or
    subprocess.run with check=True.
    """
    name = ast.unparse(call.func)
    return (
        name in {"pytest.raises", "pytest.warns", "pytest.fail"}
        or "assert" in name
        or any(ast.unparse(each) == "check=True" for each in call.keywords)
    )


def called(call: ast.Call) -> Iterator[str]:
    """Yield the names that a call leads to: a function, a class or its instance, an argument."""
    function = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    yield from (each.id for each in (function, *call.args) if isinstance(each, ast.Name))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def names(path: Path) -> dict[str, tuple[Path, Definition]]:
    """Return the tests' functions and classes that a file defines or imports by name."""
    found: dict[str, tuple[Path, Definition]] = {}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            file = FILES.get(node.module.rpartition(".")[2])
            there = definitions(file) if file is not None else {}
            found |= {
                alias.asname or alias.name: (file, there[alias.name])
                for alias in node.names
                if file is not None and alias.name in there
            }
    return found | {name: (path, node) for name, node in definitions(path).items()}


@cache
def definitions(path: Path) -> dict[str, Definition]:
    return {node.name: node for node in ast.walk(tree(path)) if isinstance(node, Definition)}
