"""The modules that a user's file needs when it is imported and its callable is called, found
without running it.

Imports of the project's own modules are followed. An import counts if the callable can reach it: at
the top of a file, or in a function or class that is used. What a file tries and goes without
(`try: ... except ImportError:`), and what only type checkers and scripts read, does not count.
"""

import ast
import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from convkit.protocol.project_folders import import_folders, package_member

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# Tests that ask whether a package is there, as transformers names them.
_ASKS = re.compile(
    r"available|installed|find_spec|has_|^have|can_import|TYPE_CHECKING|__name__", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class ModuleImport:
    """A module of no project's own, where it is imported, and whether the file may do without it:
    because the import depends on a condition.
    """

    module: str
    file: Path
    line: int
    conditional: bool = False

    @property
    def root(self) -> str:
        """The module's first name, which a package provides."""
        return self.module.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class _Statement:
    node: ast.Import | ast.ImportFrom
    conditional: bool


def needed_modules(file: Path, names: Sequence[str]) -> tuple[ModuleImport, ...]:
    """Return the first import of each module outside Python and the project that a file's callables
    `names` need, in the order in which they are met. Files that are not Python are left out.
    """
    search = _Search(import_folders(file))
    search.visit(file.absolute(), frozenset(names))
    return tuple(search.found.values())


class _Search:
    """The files that were read, with the names used of each, and the modules found."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._visited: dict[Path, frozenset[str]] = {}
        self.found: dict[str, ModuleImport] = {}

    def visit(self, file: Path, names: frozenset[str], *, conditional: bool = False) -> None:
        before = self._visited.get(file)
        if before is not None and names <= before:
            return
        names |= before or frozenset()
        self._visited[file] = names
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError):
            return
        statements, used = _reached(tree, names)
        for statement in statements:
            uncertain = conditional or statement.conditional
            for module, imported in _targets(statement.node, file):
                place = ModuleImport(module, file, statement.node.lineno, uncertain)
                self._follow(place, imported, used | _renamed(statement.node, used))

    def _follow(self, place: ModuleImport, imported: Sequence[str], used: frozenset[str]) -> None:
        if place.root in sys.stdlib_module_names:
            return
        own = list(self._own_files(place.module, imported))
        for each in own:
            self.visit(each, used, conditional=place.conditional)
        known = self.found.get(place.root)
        if not own and (known is None or (known.conditional and not place.conditional)):
            self.found[place.root] = place

    def _own_files(self, module: str, imported: Sequence[str]) -> Iterator[Path]:
        """Yield the project's files that importing a module runs; none if it is not its own."""
        parts = module.split(".")
        for folder in self._folders:
            files = [*_files(folder, parts)]
            if not files and not _has_modules(folder / parts[0]):
                continue
            yield from files
            for name in imported:
                yield from _files(folder.joinpath(*parts), [name])
            return


def _files(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    for part in parts:
        if (package := folder / part / "__init__.py").is_file():
            yield package
        elif (plain := folder / f"{part}.py").is_file():
            yield plain
        folder = folder / part


def _has_modules(folder: Path) -> bool:
    """Return whether a folder without an `__init__.py` can be imported from."""
    return folder.is_dir() and any(
        path.name != "setup.py" for path in (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    )


def _targets(
    node: ast.Import | ast.ImportFrom, file: Path
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules that a statement imports, each with the names it takes from it."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
        return
    names = tuple(alias.name for alias in node.names)
    if not node.level:
        yield node.module or "", names
    elif (member := package_member(file)) is not None:
        # A package's own module is named from the package it is in.
        own = member[1].removesuffix(".__init__").split(".")
        package = own if file.name == "__init__.py" else own[:-1]
        base = package[: len(package) - node.level + 1]
        if base:
            yield ".".join([*base, *([node.module] if node.module else [])]), names


def _renamed(node: ast.Import | ast.ImportFrom, used: frozenset[str]) -> frozenset[str]:
    """Return the names in their own module of what a file uses under another."""
    return frozenset(alias.name for alias in node.names if alias.asname in used)


def _reached(tree: ast.Module, names: frozenset[str]) -> tuple[list[_Statement], frozenset[str]]:
    """Return the imports that run if a file is imported and `names` of it are used, and all names
    that the code which runs then mentions.
    """
    definitions = {node.name: node for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    statements = [*_imports(tree.body, conditional=False)]
    used = set(names) | _mentioned(_running(tree.body))
    waiting, done = [*used], set()
    while waiting:
        name = waiting.pop()
        if name in done or name not in definitions:
            continue
        done.add(name)
        body = [definitions[name]]
        statements += _imports_within(definitions[name])
        more = _mentioned(body) - used
        used |= more
        waiting += more
    return statements, frozenset(used)


def _running(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what runs when a file is imported: all but the bodies of functions."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from (*statement.decorator_list, statement.args)
            case ast.ClassDef():
                yield from (*statement.decorator_list, *statement.bases)
                yield from _running(statement.body)
            case ast.If(test=test) if _asks(test):
                yield from _running(statement.orelse)
            case _:
                yield statement


def _mentioned(nodes: Iterable[ast.AST]) -> set[str]:
    found = set()
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                found.add(each.id)
            elif isinstance(each, ast.Attribute):
                found.add(each.attr)
    return found


def _imports_within(node: ast.stmt) -> Iterator[_Statement]:
    """Yield the imports in a function, or in a class's methods."""
    assert isinstance(node, _DEFINITIONS)
    yield from _imports(node.body, conditional=False, deep=isinstance(node, ast.ClassDef))


def _imports(
    body: Sequence[ast.stmt], *, conditional: bool, deep: bool = False
) -> Iterator[_Statement]:
    """Yield the imports among statements; `deep`: those in functions, too."""
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom():
                yield _Statement(statement, conditional)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if deep:
                    yield from _imports(statement.body, conditional=conditional)
            case ast.ClassDef():
                yield from _imports(statement.body, conditional=conditional, deep=deep)
            case ast.Try():
                yield from _tried(statement, conditional=conditional)
                yield from _imports(
                    (*statement.orelse, *statement.finalbody), conditional=conditional
                )
            case ast.If(test=test):
                yield from _branches(statement, asks=_asks(test), conditional=conditional)
            case ast.With() | ast.AsyncWith():
                yield from _imports(statement.body, conditional=conditional)
            case ast.For() | ast.While():
                yield from _imports((*statement.body, *statement.orelse), conditional=True)
            case ast.Match():
                for case in statement.cases:
                    yield from _imports(case.body, conditional=True)
            case _:
                continue


def _tried(statement: ast.Try, *, conditional: bool) -> Iterator[_Statement]:
    """Yield the imports of a `try` that the file cannot do without: it raises without them, or
    imports the same package in each way.
    """
    first = [*_imports(statement.body, conditional=conditional)]
    handlers = [each for each in statement.handlers if _handles_missing(each)]
    if not handlers or any(isinstance(each.body[-1], ast.Raise) for each in handlers):
        yield from first
        return
    others = [_roots(_imports(each.body, conditional=conditional)) for each in handlers]
    yield from (each for each in first if all(_roots([each]) & roots for roots in others))


def _branches(statement: ast.If, *, asks: bool, conditional: bool) -> Iterator[_Statement]:
    """Yield the imports of both branches. Those of one branch only depend on a condition; those of
    a branch for packages that are there, for type checkers or for scripts are left out.
    """
    body = [*_imports(statement.body, conditional=conditional)]
    other = [*_imports(statement.orelse, conditional=conditional)]
    both = _roots(body) & _roots(other)
    for each in (*(() if asks else body), *other):
        certain = bool(_roots([each]) & both)
        yield each if certain else dataclasses.replace(each, conditional=True)


def _asks(test: ast.expr) -> bool:
    return any(_ASKS.search(name) for name in _mentioned([test]))


def _handles_missing(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or not _MISSING.isdisjoint(_mentioned([handler.type]))


def _roots(statements: Iterable[_Statement]) -> set[str]:
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement.node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in statement.node.names}
        else:
            # A relative import has no package of its own to name.
            found.add(
                (statement.node.module or "").partition(".")[0]
                if not statement.node.level
                else f".{statement.node.module}"
            )
    return found
