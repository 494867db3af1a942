"""Who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import convkit

PACKAGE = Path(convkit.__file__).parent

# Who may import whom, by package or module below `convkit`; everybody may import itself and the
# bottom. Two sides: the host's packages, and those that run inside a stage's environment.
BOTTOM = {
    "codec",
    "tensors",
    "postprocessing",
    "preprocessing",
    "errors",
    "home",
    "installation",
    "origin",
    "redaction",
    "findings.model",
    "findings.remedies",
    "findings.severity",
    "__version__",
}
# Every runtime's row: the host and the workers read it.
ROWS = {"runtimes.registry", "runtimes.row"}
# What the host reads of the worker's metrics: the rows, and how they judge. No numpy.
METRICS = {"metrics.registry", "metrics.limit_kinds", "metrics.limits", "metrics.text"}
# How files that are not models are compared: bytes and JSON, with the standard library alone.
PLAIN_FILES = {"comparison.plain"}
HOST = {
    "findings": set(),
    "recipe": {"findings", "worker.protocol", "processors.image_settings", *ROWS, *METRICS},
    "store": {"findings", "worker.protocol"},
    "record": {"findings", "store", "worker.protocol", *METRICS},
    "toolchain": {
        *("findings", "recipe", "worker.protocol", "store", *ROWS),
        *("worker.seal", "worker.sealed_imports"),
    },
    "plan": {"recipe", "toolchain", "store", "worker.protocol", "worker.jobs", *ROWS},
    # Limits are judged by the same lines on both sides: a search for a precision must mean what
    # the verdict means.
    "verdict": {"plan", "recipe", "findings", "record", "worker.protocol", *METRICS},
    "track": {"findings", "store", "recipe", "record", "worker.protocol", *ROWS, *METRICS},
    "report": {"findings", "recipe", "record", "store", "worker.protocol", "verdict", *METRICS},
    "execute": {
        *("plan", "recipe", "record", "findings", "store", "toolchain", "track", "report"),
        *("verdict", "worker.protocol", "worker.jobs", *ROWS),
        *("worker.preloading", "worker.fork_server"),
        *("worker.seal", "worker.silence", "worker.control_group"),
    },
    "tune": {"execute", "recipe", "record", "verdict", *ROWS},
    "audit": {
        *("execute", "recipe", "record", "findings", "store", "plan", "toolchain"),
        *("report", "verdict", "worker.protocol", "float_limits", *ROWS, *METRICS, *PLAIN_FILES),
    },
    "nightly": {
        *("audit", "execute", "recipe", "record", "findings", "store", "toolchain", "track"),
        *("report", "verdict"),
    },
    # What people call from Python; the command line does, too.
    "api": {"execute", "recipe", "record", "findings", "session"},
    "cli": {
        "api",
        *ROWS,
        *("audit", "nightly", "tune", "execute", "plan", "recipe", "record", "findings", "store"),
        *("toolchain", "track", "report", "verdict", "worker.protocol", "precision.naming"),
        *METRICS,
    },
}
WORKER = {
    "worker": ROWS,
    "dtypes": set(),
    "float_limits": set(),
    "bindings": set(),
    "cases": {"worker", "dtypes"},
    "metrics": {"worker", "dtypes", "float_limits", "cases"},
    "models": {"worker", "dtypes", "float_limits", "cases", "metrics"},
    "precision": {"worker", "dtypes", "float_limits", "cases", "models", "metrics"},
    "localize": {"worker", "dtypes", "models"},
    # What the original's own processor makes of files, and what a contract's constants make.
    "processors": {"worker", "models"},
    "mil": {"worker"},
    "comparison": {"worker", "models"},
    # The parts of a model, called as one: by the stages, and by `convkit.load`.
    "joined": {"worker", "dtypes", "cases", "models"},
    "stages": {
        *("evaluate", "joined", "processors", *ROWS),
        *("worker", "dtypes", "cases", "models", "metrics", "precision", "comparison", "bindings"),
        *("localize", "float_limits"),
    },
    "bench": {"worker", "dtypes", "cases", "models", "stages", "joined", *ROWS},
    "evaluate": {"worker", "dtypes", "cases", "processors"},
    "runtimes": {
        "bench",
        *("worker", "dtypes", "float_limits", "cases", "models", "metrics", "precision", "mil"),
        *("comparison", "bindings", "stages", "localize"),
    },
    # `convkit.load`, which people call where their models run.
    "session": {"worker", "dtypes", "models", "joined", "processors", *ROWS},
    # A runtime's target is what a recipe writes: the host reads it.
    "target of a runtime": {"recipe", "runtimes", "worker.protocol"},
}
# The modules that people import or start: what they may hand on.
ENTRIES = {"__init__": {"session", "api", *BOTTOM}, "__main__": {"cli.main"}}
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


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def is_below(name: str, ways: set[str]) -> bool:
    return any(name == way or name.startswith(f"{way}.") for way in ways)


def part_of(path: Path) -> str:
    """Return the part of convkit that a module belongs to."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    if parts[0] == "runtimes" and parts[-1].startswith("target"):
        return "target of a runtime"
    return parts[0]


def test_every_package_has_its_place() -> None:
    parts = {part_of(path) for path in MODULES}
    assert parts - set(ENTRIES) == {
        *HOST,
        *WORKER,
        *(name for name in BOTTOM if "." not in name),
    } - {"__version__"}


def test_imports_point_down() -> None:
    wrong = []
    for path in MODULES:
        part = part_of(path)
        ways = ENTRIES.get(part) or {part, *BOTTOM, *(HOST | WORKER).get(part, ())}
        inner = {
            name.removeprefix("convkit.") for name in imports(path) if name.startswith("convkit.")
        }
        wrong += [
            f"{path.relative_to(PACKAGE)}: {name}"
            for name in sorted(inner)
            if not is_below(name, ways)
        ]
    assert wrong == []


def test_host_and_worker_keep_to_their_own_libraries() -> None:
    wrong = []
    for path in MODULES:
        part = part_of(path)
        at_work = part in WORKER and part != "target of a runtime"
        others = HOST_ONLY if at_work else STAGE_ONLY
        used = {name.split(".")[0] for name in imports(path)} & (
            others if part != "session" else set()
        )
        wrong += [f"{path.relative_to(PACKAGE)}: {name}" for name in used]
    assert wrong == []


def test_an_import_upwards_is_seen(monkeypatch, tmp_path) -> None:
    path = tmp_path / "convkit" / "mil" / "upward.py"
    path.parent.mkdir(parents=True)
    path.write_text("def f():\n    from convkit.stages import export\n    import pydantic\n")
    monkeypatch.setattr("test_layers.MODULES", [path])
    monkeypatch.setattr("test_layers.PACKAGE", path.parents[1])
    with pytest.raises(AssertionError, match=r"stages\.export"):
        test_imports_point_down()
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
