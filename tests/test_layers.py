"""Who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import convkit

PACKAGE = Path(convkit.__file__).parent

# A package may import itself and those listed; the bottom is free to all.
MAY_IMPORT = {
    "findings": set(),
    "recipe": {"findings"},
    "store": {"findings", "worker.protocol"},
    "toolchain": {"findings", "recipe", "worker.protocol", "store"},
    "plan": {"recipe", "toolchain", "store", "worker.protocol"},
    # Limits are judged by the same lines on both sides: a search for a precision must mean what the verdict means.
    "verdict": {"plan", "recipe", "findings", "worker.protocol", "worker.numerics.limits"},
    "track": {"findings", "store", "recipe", "worker.protocol"},
    "report": {"findings", "recipe", "worker.protocol", "verdict"},
    "execute": {"plan", "recipe", "findings", "store", "toolchain", "track", "report", "verdict", "worker.protocol"},
    "audit": {"execute", "recipe", "findings", "store", "plan", "toolchain", "worker.protocol"},
    "nightly": {"audit", "execute", "recipe", "findings", "store", "toolchain", "track"},
    "cli": {
        "audit",
        "nightly",
        "execute",
        "plan",
        "recipe",
        "findings",
        "store",
        "toolchain",
        "track",
        "report",
        "verdict",
        "worker.protocol",
        "worker.precision.naming",
    },
    "worker": {"findings.model"},
}
BOTTOM = {"codec", "tensors", "errors", "home", "record", "provenance", "figures", "session"}
WORKER_BOTTOM = {"codec", "tensors"}
HOST_ONLY = {"pydantic", "yaml", "typer", "rich", "mlflow", "jinja2", "filelock", "uv", "click", "sqlalchemy"}
HOST_ONLY |= {"dask", "distributed", "fsspec"}
STAGE_ONLY = {"torch", "onnx", "onnx_ir", "onnxruntime", "numpy", "transformers", "coremltools", "tensorrt"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    package = path.relative_to(PACKAGE).parts[0]
    for name in imports(path):
        if not name.startswith("convkit."):
            continue
        inner = name.removeprefix("convkit.")
        top = inner.split(".")[0]
        if package == "worker":
            assert top == "worker" or top in WORKER_BOTTOM or inner.startswith("findings.model"), name
        elif package in MAY_IMPORT and top != package and top not in BOTTOM and top != "__version__":
            assert any(inner == way or inner.startswith(way + ".") for way in MAY_IMPORT[package]), name


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_host_and_worker_keep_to_their_own_libraries(path: Path) -> None:
    inside = path.relative_to(PACKAGE).parts[0]
    if inside == "session.py":
        return
    tops = {name.split(".")[0] for name in imports(path)}
    assert not tops & (HOST_ONLY if inside == "worker" else STAGE_ONLY)


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
    ]
    done = subprocess.run([sys.executable, "-c", HEAVY % heavy], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stderr.strip() == "[]"
