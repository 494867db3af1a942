"""A stage's key covers exactly the code that the stage can run."""

import ast
from pathlib import Path

import pytest

import convkit
from convkit.plan.worker_code import WORKER_CODE
from convkit.worker.protocol import JobKind

PACKAGE = Path(convkit.__file__).parent


def module_file(name: str) -> Path | None:
    path = PACKAGE.parent / Path(*name.split("."))
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if found.is_file():
            return found
    return None


def imported(path: Path) -> set[Path]:
    files: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if not name.startswith("convkit."):
                continue
            parts = name.split(".")
            for length in range(2, len(parts) + 1):
                found = module_file(".".join(parts[:length]))
                if found is not None:
                    files.add(found)
    return files


def closure(stage: JobKind) -> set[str]:
    """Return every file of the package that a stage's module can come to import, also lazily."""
    seen: set[Path] = set()
    entry = f"{stage.replace('-', '_')}.py"
    pending = [PACKAGE / "worker" / "stages" / entry, PACKAGE / "worker" / "process.py"]
    while pending:
        path = pending.pop()
        # The dispatcher imports every stage; a process runs one.
        if path in seen or (path.parent.name == "stages" and path.name not in ("__init__.py", entry) and not seen):
            continue
        seen.add(path)
        if path != PACKAGE / "worker" / "stages" / "__init__.py":
            pending += imported(path)
    return {path.relative_to(PACKAGE).as_posix() for path in seen}


def covered(stage: JobKind) -> set[str]:
    files: set[str] = set()
    for entry in WORKER_CODE[stage]:
        place = PACKAGE / entry
        assert place.exists(), entry
        found = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        files |= {path.relative_to(PACKAGE).as_posix() for path in found}
    return files


@pytest.mark.parametrize("stage", list(WORKER_CODE))
def test_the_key_covers_all_code_the_stage_imports(stage: JobKind) -> None:
    packages = {"__init__.py", "worker/__init__.py", "findings/__init__.py", "worker/numerics/__init__.py"}
    missing = closure(stage) - covered(stage) - packages - {"worker/bootstrap.py"}
    assert missing == set()


@pytest.mark.parametrize("stage", list(WORKER_CODE))
def test_the_key_covers_no_folder_that_the_stage_has_no_use_for(stage: JobKind) -> None:
    used = closure(stage)
    for entry in WORKER_CODE[stage]:
        if entry == "worker/bootstrap.py":  # starts the process; nothing imports it
            continue
        assert any(name == entry or name.startswith(entry + "/") for name in used), entry
