"""A stage's key covers exactly the code that the stage can run."""

import ast
from pathlib import Path

import pytest

import convkit
from convkit.host.plan.code_of_jobs import code_digest, imports_of, reached_modules
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.runtimes.runtime_registry import runtimes

PACKAGE = Path(convkit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def module_file(name: str) -> Path | None:
    path = PACKAGE.parent / Path(*name.split("."))
    return next(
        (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None
    )


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def parsed_imports(path: Path) -> set[Path]:
    """Return what a file imports, by Python's own parser."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    parts = [name.split(".") for name in names if name.startswith("convkit.")]
    prefixes = [".".join(part[:length]) for part in parts for length in range(2, len(part) + 1)]
    return {file for prefix in prefixes if (file := module_file(prefix)) is not None}


@pytest.mark.thorough
def test_imports_are_found_as_pythons_parser_finds_them():
    assert len(FILES) > 300
    names = {file: module_name(file) for file in FILES}
    assert {file: set(imports_of(names[file])) for file in FILES} == {
        file: {module_name(each) for each in parsed_imports(file)} for file in FILES
    }


# Given models are opened by the sessions of their formats' runtimes. TensorRT-RTX's engines are
# built and run by what TensorRT's are.
OPENS = {"given": ("openvino", "coreml"), "tensorrt-rtx": ("tensorrt",)}

ROOTS = [
    (kind, name)
    for kind, job in JOBS.items()
    for name in (runtimes() if job.has_options else [None])
    if job.module_for(runtimes()[name] if name is not None else None) is not None
]


def job_module(kind: str, name: str | None) -> str:
    module = JOBS[kind].module_for(runtimes()[name] if name is not None else None)
    assert module is not None
    return module


@pytest.mark.parametrize(("kind", "runtime"), ROOTS)
def test_a_job_s_code_is_its_own_and_all_that_it_reaches(kind, runtime):
    module = job_module(kind, runtime)
    names = set(reached_modules([module]))
    assert module in names
    start = {"convkit.worker.process.stage_process", "convkit.worker.process.bootstrap"}
    assert start | {"convkit.protocol.json_codec"} <= names
    assert {name.split(".")[1] for name in names} <= {"protocol", "worker", "runtimes"}
    opens = OPENS.get(runtime, ())
    others = {row for row in runtimes() if row not in (runtime, "onnxruntime", *opens)}
    assert not {
        name
        for name in names
        for other in others
        if f"{name}.".startswith(f"convkit.runtimes.{other}.")
    }


def test_what_a_job_cannot_reach_is_not_in_its_key():
    export = set(reached_modules([job_module("export", None)]))
    verify = set(reached_modules([job_module("verify", "onnxruntime")]))
    coreml = set(reached_modules([job_module("verify", "coreml")]))
    for name, reached in (
        ("convkit.worker.exporters.torchscript_exporter", export),
        ("convkit.worker.mil.evaluation.evaluator", coreml),
    ):
        assert name in reached
        assert name not in verify


def test_a_changed_file_changes_the_digest(monkeypatch):
    from convkit.host.plan import code_of_jobs

    build = job_module("build", "onnxruntime")
    before = code_digest([build])
    real = code_of_jobs._source

    def commented(module: str, package: str) -> bytes:
        return real(module, package) + (b"#" if module == "convkit.worker.job_context" else b"")

    monkeypatch.setattr(code_of_jobs, "_source", commented)
    # Without the cache, which would keep the digest of the changed file for later tests.
    monkeypatch.setattr(code_of_jobs, "_digest", code_of_jobs._digest.__wrapped__)
    assert code_digest([build]) != before


def test_a_digest_covers_the_files_in_the_order_of_their_paths():
    names = reached_modules([job_module("export", None), job_module("build", "coreml")])
    assert len(names) > 200
    files = [module_file(name) for name in names]
    assert files == sorted(files)
