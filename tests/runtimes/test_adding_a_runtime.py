"""CONTRIBUTING's steps to add a runtime, followed in a copy of convkit: nothing else is touched."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from copied_package import PACKAGE, REPOSITORY, Command, copy_package, replace_once, steps
from extra_runtime import NAME, RECIPE, write_runtime
from small_graphs import graph, save


def digests(package: Path) -> dict[str, str]:
    """Return the digest of each file of a package, by its path."""
    return {
        f"convkit/{file.relative_to(package).as_posix()}": hashlib.sha256(
            file.read_bytes()
        ).hexdigest()
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of convkit with one more built-in runtime."""
    package = copy_package(tmp_path_factory.mktemp("copy"))
    write_runtime(package / "runtimes" / NAME, f"convkit.runtimes.{NAME}")
    last = '    "openvino": "convkit.runtimes.openvino",\n'
    replace_once(
        package / "protocol" / "runtimes" / "runtime_registry.py",
        last,
        f'{last}    "{NAME}": "convkit.runtimes.{NAME}",\n',
    )
    return package


@pytest.fixture(scope="module")
def command(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(package, tmp_path_factory.mktemp("home"))


def test_contributing_names_exactly_the_files(package: Path) -> None:
    before, after = digests(PACKAGE), digests(package)
    changed = {path for path in after if before.get(path) != after[path]}
    folder = f"convkit/runtimes/{NAME}/"
    touched = {folder if path.startswith(folder) else path for path in changed}
    listed = {
        path.replace("<name>", NAME)
        for path in steps("To add a runtime, touch exactly these files")
    }
    assert listed == touched | {f"docs/{NAME}.md"}
    assert before.keys() <= after.keys()


@pytest.mark.thorough
def test_the_schema_has_it(command: Command) -> None:
    schema = json.loads(command("schema").stdout)
    assert schema["$defs"]["TinyTarget"]["properties"]["runtime"]["const"] == NAME


@pytest.mark.slow
@pytest.mark.thorough
def test_the_conformance_tests_check_it(package: Path, tmp_path: Path) -> None:
    """They pass with its row, and fail with a wrong one."""
    row = package / "runtimes" / NAME / "__init__.py"
    right = row.read_text(encoding="utf-8")
    try:
        assert conformance(package, tmp_path) == 0
        row.write_text(right.replace("options:TinyOptions", "options:Misspelt"), encoding="utf-8")
        assert conformance(package, tmp_path) == 1
    finally:
        row.write_text(right, encoding="utf-8")


def conformance(package: Path, folder: Path) -> int:
    """Run the tests of each row on the copy's new one; return pytest's exit code."""
    tests = REPOSITORY / "tests" / "runtimes" / "test_runtimes.py"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"),
            *(str(tests), "-k", NAME),
        ],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert " passed" in done.stdout, done.stdout + done.stderr
    return done.returncode


@pytest.mark.slow
@pytest.mark.thorough
def test_it_converts_a_model(command: Command, tmp_path: Path) -> None:
    save(tmp_path / "original", graph(), carries=None)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    done = command("run", recipe, "--toolchain", "host", "--no-track", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    targets = {each["name"]: each for each in json.loads(done.stdout)["targets"]}
    assert {name: each["status"] for name, each in targets.items()} == {
        "right": "verified",
        "wrong": "failed",
    }
    (verification,) = targets["right"]["verifications"]
    assert (verification["evidence"], verification["providers"]) == ("device", ["reference"])
