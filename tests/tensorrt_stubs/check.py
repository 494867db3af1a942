"""Type-checks code that uses TensorRT against the stubs of one release: each name and keyword is
proved to exist.

Code that differs between releases gives the question a name, `TENSORRT_11` (or `tensorrt_11`, for a
local, a parameter or a field), and branches with the statement `if TENSORRT_11:`:

    TENSORRT_11: bool = int(trt.__version__.partition(".")[0]) >= 11

mypy takes the name as true for 11 and as false for 10, and reads only that release's branch;
`else`, `not`, `and`, `or` and code after a branch that returns are understood. A conditional
expression (`x if TENSORRT_11 else y`), a `match` and a comparison of numbers are not: both sides
are read for both releases.

What escapes: values typed Any (`unchecked` finds them), `getattr` with a string, code behind
`hasattr`, which mypy trusts.
"""

import ast
import atexit
import difflib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tensorrt_stubs.bindings import RELEASES, Release, names, stubs

ROOT = Path(__file__).parents[2]
BRANCH_NAMES = ("TENSORRT_11", "tensorrt_11")
UNREACHABLE = "unreachable"
OPTIONS = (
    "--check-untyped-defs",
    "--disallow-untyped-defs",
    "--extra-checks",
    "--strict-equality",
    "--warn-unreachable",  # what mypy does not read, it does not prove
    # Only the stubs matter: what other packages give is Any, whether they are installed or not.
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    "--python-version=3.11",
    "--output=json",
    "--config-file=",
)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong for a release."""

    source: Path
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}: {self.message} [{self.code}]"


def check(release: Release, sources: Sequence[Path]) -> list[Finding]:
    """Return what is wrong in these files for the release; an empty list means that every name in
    use exists there.
    """
    found = _mypy(release, sources)
    unreachable = {
        (finding.source, finding.line) for finding in found if finding.code == UNREACHABLE
    }
    for other in RELEASES.values() if unreachable else ():
        # Code after `if TENSORRT_11: return` is read for 10 alone, as it is meant to be.
        if other != release:
            there = [finding for finding in _mypy(other, sources) if finding.code == UNREACHABLE]
            unreachable &= {(finding.source, finding.line) for finding in there}
    kept = [f for f in found if f.code != UNREACHABLE or (f.source, f.line) in unreachable]
    return kept + [finding for source in sources for finding in _strange_callbacks(release, source)]


def unchecked(sources: Sequence[Path]) -> list[Finding]:
    """Return the uses of TensorRT's names whose misspelling no release's check would notice, as on
    a value typed Any.

    Each use is misspelled in a copy, together with one use of each other function at most: what a
    misspelling makes Any would hide the next one. All copies are checked at once. Names are
    TensorRT's where they have an underscore or a capital: `shape`, `name` and the like are arrays'
    too.
    """
    known = {name.rpartition(".")[2] for release in RELEASES.values() for name in names(release)}
    telling = {
        name
        for name in known
        if not name.startswith("__") and (name.lower() != name or "_" in name)
    }
    with tempfile.TemporaryDirectory() as folder:
        uses: dict[str, Finding] = {}
        copies: list[Path] = []
        for source in sources:
            for together in _apart(_uses(source, telling)):
                marks = {}
                for node in together:
                    mark = f"_misspelled{len(uses)}"
                    marks[mark] = node
                    uses[mark] = Finding(
                        source, node.end_lineno or 0, "unchecked", f"{node.attr} may be anything"
                    )
                copies.append(Path(folder) / f"misspelled_{len(copies)}.py")
                copies[-1].write_text(_misspelled(source.read_text(), marks))
        if not copies:
            return []
        told = " ".join(
            finding.message for release in RELEASES.values() for finding in _mypy(release, copies)
        )
        noticed = set(re.findall(r"_misspelled\d+", told))
    return [use for mark, use in uses.items() if mark not in noticed]


def _mypy(release: Release, sources: Sequence[Path]) -> list[Finding]:
    folder = stubs(release)
    assert (folder / "tensorrt" / "__init__.pyi").is_file(), (
        "without the stub, every name would pass"
    )
    branch = "--always-true" if release.major >= 11 else "--always-false"
    command = [
        *(sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={_cache() / release.version}"),
        *(option for name in BRANCH_NAMES for option in (branch, name)),
        *map(str, sources),
    ]
    environment = {**os.environ, "MYPYPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, f"mypy failed:\n{done.stdout}{done.stderr}"
    found = [
        _finding(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")
    ]
    assert bool(found) == bool(done.returncode), (
        f"mypy said what was not understood:\n{done.stdout}{done.stderr}"
    )
    return found


@cache
def _cache() -> Path:
    """Return a folder for what mypy keeps: this process's own, since mypy's database has one user
    at a time.
    """
    folder = tempfile.mkdtemp(prefix="tensorrt-contract-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _finding(record: dict[str, object]) -> Finding:
    hint = f" ({record['hint']})" if record.get("hint") else ""
    source = (ROOT / str(record["file"])).resolve()
    return Finding(
        source, int(str(record["line"])), str(record["code"]), f"{record['message']}{hint}"
    )


def _strange_callbacks(release: Release, source: Path) -> Iterator[Finding]:
    """Find methods of a class derived from TensorRT's interface whose names are nearly a
    callback's.
    """
    known = names(release)
    classes = [
        node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.ClassDef)
    ]
    for derived, base in (
        (node, base) for node in classes for base in node.bases if isinstance(base, ast.Attribute)
    ):
        callbacks = {
            name.removeprefix(f"{base.attr}.") for name in known if name.startswith(f"{base.attr}.")
        }
        for method in derived.body:
            if isinstance(method, ast.FunctionDef) and method.name not in callbacks:
                for meant in difflib.get_close_matches(method.name, callbacks, n=1, cutoff=0.75):
                    message = f"{base.attr}.{method.name} is never called; maybe {meant}?"
                    yield Finding(source, method.lineno, "override", message)


def _uses(source: Path, telling: set[str]) -> Iterator[tuple[ast.Attribute, str | None]]:
    """Give each use of one of the names as an attribute, with the function it is in.

    None stands for what others build on without an annotation: a module, a class, and an
    `__init__`.
    """
    tree = ast.parse(source.read_text())
    foreign = set(_foreign_imports(tree))
    within = {
        inner: f"{function.name}:{function.lineno}"
        for function in _outermost_functions(tree)
        if function.name != "__init__"
        for inner in ast.walk(function)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in telling:
            continue
        root: ast.expr = node
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        if isinstance(root, ast.Name) and root.id in foreign:
            continue
        yield node, within.get(node)


def _outermost_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            yield from _outermost_functions(node)


def _apart(uses: Iterable[tuple[ast.Attribute, str | None]]) -> list[list[ast.Attribute]]:
    """Return groups of uses in which no function comes twice; what is in none stands alone."""
    alone: list[list[ast.Attribute]] = []
    functions: dict[str, list[ast.Attribute]] = {}
    for node, function in uses:
        if function is None:
            alone.append([node])
        else:
            functions.setdefault(function, []).append(node)
    together = itertools.zip_longest(*functions.values())
    return [*alone, *([node for node in group if node is not None] for group in together)]


def _misspelled(text: str, marks: Mapping[str, ast.Attribute]) -> str:
    """Return a source with a mark behind each of these uses."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for mark, node in sorted(marks.items(), key=lambda each: -(each[1].end_col_offset or 0)):
        assert node.end_lineno is not None
        line = lines[node.end_lineno - 1]
        lines[node.end_lineno - 1] = (
            line[: node.end_col_offset] + mark.encode() + line[node.end_col_offset :]
        )
    return b"".join(lines).decode()


def _foreign_imports(tree: ast.Module) -> Iterator[str]:
    """Give the names under which neither TensorRT nor convkit is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [
                (alias.name, alias.asname or alias.name.partition(".")[0]) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            modules = [(node.module or "", alias.asname or alias.name) for alias in node.names]
        else:
            continue
        yield from (
            name
            for module, name in modules
            if module.partition(".")[0] not in {"tensorrt", "convkit"}
        )
