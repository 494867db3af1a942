"""Who may import whom."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import convkit

PACKAGE = Path(convkit.__file__).parent

# Each street, and those it may import from besides itself. A runtime's `target*.py` is a street of
# its own: recipes read it.
STREETS = {
    "protocol": set(),
    "host": {"protocol"},
    "worker": {"protocol"},
    "runtimes": {"protocol", "worker"},
    "target": {"protocol", "host", "runtimes"},
    "python": {"protocol", "host", "worker"},
    "cli": {"protocol", "host", "python"},
    "__main__": {"cli"},
    "__init__": {"protocol", "python"},
}
HOST_ONLY = {
    "pydantic",
    "yaml",
    "typer",
    "rich",
    "mlflow",
    "jinja2",
    "filelock",
    "uv",
    "click",
    "sqlalchemy",
}
HOST_ONLY |= {"dask", "distributed", "fsspec"}
HOST_ONLY |= {"cryptography", "model_signing", "packageurl", "securesystemslib", "sigstore"}
STAGE_ONLY = {
    "openvino",
    "torch",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "numpy",
    "transformers",
    "coremltools",
    "tensorrt",
}

MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_FILES = 22


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def import_statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, known: set[str]) -> set[str]:
    """Return the modules that a module imports: convkit's own by their full name."""
    found: set[str] = set()
    for node in import_statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in full}
    return found


def street_of(name: str) -> str:
    parts = name.split(".")
    if len(parts) == 1:
        return "__init__"
    return "target" if parts[1] == "runtimes" and parts[-1].startswith("target") else parts[1]


def graph() -> dict[str, set[str]]:
    """Return what each of convkit's modules imports of convkit."""
    known = {module_name(path) for path in MODULES}
    return {
        module_name(path): {name for name in imports(path, known) if name in known}
        for path in MODULES
    }


def folder_of(name: str, modules: Iterable[str]) -> str:
    is_package = any(other.startswith(f"{name}.") for other in modules)
    return name if is_package else name.rpartition(".")[0]


def circles(arrows: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the sets of names that reach each other."""
    left = {name: set(others) for name, others in arrows.items()}
    while leaves := {n for n, others in left.items() if not others & left.keys()}:
        left = {name: others for name, others in left.items() if name not in leaves}
    below: dict[str, set[str]] = {}
    for start in left:
        pending, reached = [start], set[str]()
        while pending:
            for name in arrows.get(pending.pop(), ()):
                if name not in reached:
                    reached.add(name)
                    pending.append(name)
        below[start] = reached
    found = [
        {start, *(n for n in reached if start in below.get(n, ()))}
        for start, reached in below.items()
        if start in reached
    ]
    return [circle for place, circle in enumerate(found) if circle not in found[:place]]


def test_streets_import_from_those_they_may() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in sorted(others)
        if street_of(other) not in {street_of(name), *STREETS[street_of(name)]}
    ]
    assert wrong == []


def test_no_files_import_each_other() -> None:
    assert circles({name: others - {name} for name, others in graph().items()}) == []


@pytest.mark.thorough
def test_no_folders_import_each_other() -> None:
    found = graph()
    arrows: dict[str, set[str]] = {}
    for name, others in found.items():
        here = folder_of(name, found)
        arrows.setdefault(here, set()).update(folder_of(other, found) for other in others)
    assert circles({here: there - {here} for here, there in arrows.items()}) == []


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    sizes = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    assert {str(path): n for path, n in sizes.items() if n > MOST_FILES} == {}


def test_host_and_worker_keep_to_their_own_libraries() -> None:
    wrong = []
    for path in MODULES:
        name = module_name(path)
        street = street_of(name)
        others = HOST_ONLY if street in ("worker", "runtimes") else STAGE_ONLY
        used = {each.split(".")[0] for each in imports(path, set())} & others
        # What both sides read, and what users call where a model runs.
        if name not in ("convkit.protocol.numpy_dtypes", "convkit.python.built_model"):
            wrong += [f"{name}: {each}" for each in used]
    assert wrong == []


def test_wrong_imports_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "convkit"
    texts = {
        "worker/mil/upward.py": "from convkit.host import home\nimport pydantic\n",
        "worker/mil/one.py": "def f():\n    from convkit.worker.graph import other\n",
        "worker/graph/other.py": "from convkit.worker.mil import one\n",
        "host/home.py": "import torch\n",
        **{f"worker/mil/file{n}.py": "" for n in range(MOST_FILES)},
    }
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr("test_layers.MODULES", sorted(package.rglob("*.py")))
    monkeypatch.setattr("test_layers.PACKAGE", package)
    with pytest.raises(AssertionError, match=r"upward imports convkit\.host\.home"):
        test_streets_import_from_those_they_may()
    with pytest.raises(AssertionError, match=r"graph\.other"):
        test_no_files_import_each_other()
    with pytest.raises(AssertionError, match=r"convkit\.worker\.graph"):
        test_no_folders_import_each_other()
    with pytest.raises(AssertionError, match=r"worker/mil"):
        test_a_folder_can_be_taken_in_at_a_glance()
    with pytest.raises(AssertionError, match="pydantic"):
        test_host_and_worker_keep_to_their_own_libraries()


HEAVY = """
import sys
sys.argv = ["convkit", "--help"]
try:
    import convkit.cli.main
    convkit.cli.main.main()
except SystemExit:
    pass
print(sorted({name.split(".")[0] for name in sys.modules} & set(%r)), file=sys.stderr)
"""


def test_help_imports_nothing_heavy() -> None:
    heavy = [
        "torch",
        "mlflow",
        "numpy",
        "onnx",
        "onnxruntime",
        "sqlalchemy",
        "pydantic",
        "yaml",
        "jinja2",
        "transformers",
        "distributed",
        "fsspec",
        "securesystemslib",
        "model_signing",
    ]
    done = subprocess.run(
        [sys.executable, "-c", HEAVY % heavy], capture_output=True, text=True, check=True
    )
    assert "Usage" in done.stdout
    assert done.stderr.strip() == "[]"
