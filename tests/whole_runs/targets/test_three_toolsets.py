"""One recipe whose targets need tools that could never share an environment, in isolated
environments of real tools.
"""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from held_environments import release_all
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from shared_keys import bert

from convkit.host.home import Home
from convkit.host.record.run_record import StageReport
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    list_environments,
)
from convkit.host.toolchain.versions.interpreters import find_interpreter
from convkit.host.toolchain.versions.stage_requirements import DEFAULT_PYTHON
from convkit.host.toolchain.versions.uv_commands import uv_environment
from convkit.protocol.findings.finding import Finding

pytestmark = [pytest.mark.slow, pytest.mark.network]

BERT = bert(seed=0, num_hidden_layers=1)
RECIPE = BERT | {
    "schema": 1,
    "name": "toolsets",
    "model": {"config": BERT["model"]["config"], "task": "feature-extraction"},
    "tools": {
        "python": DEFAULT_PYTHON,
        "torch": "==2.13.*",
        "transformers": "==4.57.*",
        "numpy": "==2.2.*",
    },
    "export": {"exporter": "optimum", "opset": 17},
    "verify": {"tolerance": {"max_abs": 1e-4}},
    "targets": {
        # Built against NumPy 1, its import fails under NumPy 2.
        "old": {"runtime": "onnxruntime", "versions": ["==1.17.*"], "tools": {"numpy": "==1.26.*"}},
        "ort": {"runtime": "onnxruntime", "versions": ["==1.21.*", "==1.31.*"]},
        "coreml": {
            "runtime": "coreml",
            "minimum": "iOS17",
            "tools": {"coremltools": "==9.0", "numpy": "==1.26.*", "transformers": "==4.56.*"},
        },
    },
}
ORIGINAL = {"torch": "==2.13.*", "transformers": "==4.57.*", "numpy": "==2.2.*"}
CORE_ML = {
    "coremltools": "==9.0",
    "torch": "==2.13.*",
    "transformers": "==4.56.*",
    "numpy": "==1.26.*",
}
# What each stage must say it ran with.
SPECIFIED = {
    "export": ORIGINAL | {"optimum": ">=2"},
    "reference": ORIGINAL,
    "build:old": {"numpy": "==1.26.*"},
    "build:ort": {"numpy": "==2.2.*", "onnxruntime": "==1.31.*"},
    "verify:old@==1.17.*": {"numpy": "==1.26.*", "onnxruntime": "==1.17.*"},
    "verify:ort@==1.21.*": {"numpy": "==2.2.*", "onnxruntime": "==1.21.*"},
    "verify:ort@==1.31.*": {"numpy": "==2.2.*", "onnxruntime": "==1.31.*"},
    "build:coreml": CORE_ML,
    "verify:coreml": {
        name: release for name, release in CORE_ML.items() if name != "transformers"
    },  # not needed there
}
FAKE = "raise ImportError('a numpy of the host leaked in')\n"


def write(folder: Path, **changes: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes, sort_keys=False))
    return path


def options(recipe: Path, home: Path) -> RunOptions:
    return RunOptions(recipe, Home(home), track=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("toolsets")
    release_all()


@pytest.fixture(scope="module")
def poison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's home whose own packages hold a numpy that cannot be imported."""
    folder = tmp_path_factory.mktemp("poison")
    packages = folder / ".local" / "lib" / f"python{DEFAULT_PYTHON}" / "site-packages"
    for place in (packages, folder / "path"):
        (place / "numpy").mkdir(parents=True)
        (place / "numpy" / "__init__.py").write_text(FAKE)
    return folder


def poisoned(folder: Path) -> dict[str, str]:
    # What is found by way of the home must still be found: the cache, wheels, the index.
    known = {name: value for name, value in uv_environment().items() if name.startswith("UV_")}
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    return known | {
        "UV_CACHE_DIR": cache,
        "HOME": str(folder),
        "PYTHONUSERBASE": str(folder / ".local"),
        "PYTHONPATH": str(folder / "path"),
        "PYTHONHOME": str(folder / "no Python is here"),
    }


@pytest.fixture(
    scope="module",
    params=[("old", "ort"), pytest.param(("old", "ort", "coreml"), marks=pytest.mark.thorough)],
    ids=" ".join,
)
def outcome(request: pytest.FixtureRequest, home: Path, poison: Path) -> RunOutcome:
    targets = {name: RECIPE["targets"][name] for name in request.param}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in poisoned(poison).items():
            patch.setenv(name, value)
        return run_recipe(options(write(home, targets=targets), home))


def targets_of(outcome: RunOutcome) -> set[str]:
    return {target.name for target in outcome.record.targets}


def specified(outcome: RunOutcome) -> dict[str, dict[str, str]]:
    """Return what each stage of a run must say it ran with."""
    stages = {"", *targets_of(outcome)}
    return {
        name: packages
        for name, packages in SPECIFIED.items()
        if name.partition(":")[2].partition("@")[0] in stages
    }


def stage(outcome: RunOutcome, name: str) -> StageReport:
    return next(stage for stage in outcome.record.stages if stage.id == name)


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE"])
def test_the_poison_would_work_on_an_unprotected_process(poison: Path, variable: str) -> None:
    environment = {variable: poisoned(poison)[variable]}
    python = find_interpreter(DEFAULT_PYTHON, "tools.python")
    done = subprocess.run(
        [python, "-c", "import numpy"], capture_output=True, text=True, check=False, env=environment
    )
    expected = (
        "No module named 'encodings'"
        if variable == "PYTHONHOME"
        else "a numpy of the host leaked in"
    )
    assert expected in done.stderr


def test_every_target_is_verified_in_one_run(outcome: RunOutcome) -> None:
    assert outcome.record.exit_code == 0
    assert {target.status for target in outcome.record.targets} == {"verified"}
    evidence = [v.evidence for target in outcome.record.targets for v in target.verifications]
    assert sorted(evidence)[:3] == ["device"] * 3  # Core ML's is simulated where there is no macOS
    assert len(evidence) == (4 if "coreml" in targets_of(outcome) else 3)


def test_every_stage_ran_with_what_the_recipe_says(outcome: RunOutcome) -> None:
    for name, packages in specified(outcome).items():
        versions = stage(outcome, name).versions
        for package, specifier in packages.items():
            assert package in versions, (name, versions)
            assert SpecifierSet(specifier).contains(versions[package].partition("+")[0]), (
                name,
                package,
                versions[package],
            )


def test_everything_a_stage_saw_is_of_one_environment(outcome: RunOutcome, home: Path) -> None:
    packages = [made_from.packages for _, made_from in list_environments(home)]
    for name in specified(outcome):
        versions = stage(outcome, name).versions
        seen = {
            canonicalize_name(package): version
            for package, version in versions.items()
            if package != "python"
        }
        assert any(seen.items() <= each.items() for each in packages), name
        assert len(seen) >= 2, name


def test_no_release_of_the_host_leaked(outcome: RunOutcome) -> None:
    assert {each.id for each in outcome.record.stages} == set(specified(outcome))
    here = {name: importlib.metadata.version(name) for name in ("numpy", "transformers")}
    for each in outcome.record.stages:
        for name, version in here.items():
            assert each.versions.get(name) != version, (each.id, name)
    onnxruntime = importlib.metadata.version("onnxruntime")
    for name in ("verify:old@==1.17.*", "verify:ort@==1.21.*"):
        assert stage(outcome, name).versions["onnxruntime"] != onnxruntime


def test_the_second_time_no_environment_needs_a_process(
    outcome: RunOutcome, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    standing = list_environments(home)
    count = 6 if "coreml" in targets_of(outcome) else 5
    assert len(standing) == count
    release_all()
    messages: list[str] = []
    environments = [
        ensure_environment(made_from, home, progress=messages.append) for _, made_from in standing
    ]
    assert messages == []
    assert len({environment.python for environment in environments}) == count
    assert run_recipe(options(home / "recipe.yaml", home)).up_to_date


def errors(outcome: RunOutcome) -> list[Finding]:
    return [finding for finding in outcome.record.findings if finding.is_error]


def only_old(version: str) -> dict[str, Any]:
    return {
        "old": {"runtime": "onnxruntime", "versions": [version], "tools": {"numpy": "==1.26.*"}}
    }


@pytest.mark.thorough
def test_a_file_format_too_new_for_a_release_is_told_and_its_remedy_heals_it(
    home: Path, tmp_path: Path
) -> None:
    recipe = write(
        tmp_path,
        name="format",
        export={"exporter": "torch", "opset": 18},
        targets=only_old("==1.17.*"),
    )
    repaired = repair_recipe(options(recipe, home))
    assert repaired.first.status == "failed"
    first = [finding for finding in repaired.first.findings if finding.is_error]
    assert {finding.code for finding in first} == {"V102", "N104"}  # and so nothing was compared
    first = [finding for finding in first if finding.code == "V102"]
    assert first[0].evidence["release"].startswith("1.17.")
    assert first[0].remedy is not None
    assert first[0].remedy.change == {"export.exporter": "torchscript"}
    assert [(step.code, step.change) for step in repaired.steps] == [
        ("V102", first[0].remedy.change)
    ]
    assert repaired.repaired
    assert repaired.last.record.targets[0].status == "verified"


@pytest.mark.thorough
def test_an_opset_too_new_for_a_release_is_told_and_its_remedy_heals_it(
    home: Path, tmp_path: Path
) -> None:
    recipe = write(
        tmp_path,
        name="opset",
        export={"exporter": "torch", "opset": 22},
        targets=only_old("==1.18.*"),
    )
    repaired = repair_recipe(options(recipe, home))
    found = {finding.code: finding for finding in repaired.first.findings if finding.is_error}
    assert set(found) == {"V101", "N104"}  # and so nothing was compared
    assert found["V101"].evidence["opsets"][""] == 22
    assert found["V101"].remedy is not None
    assert "21 is the newest that this release can load" in found["V101"].remedy.text
    assert found["V101"].remedy.change == {"export.opset": 21}  # as 1.18 says of itself
    assert found["N104"].remedy is not None
    assert "V101" in found["N104"].remedy.text
    assert [(step.code, step.change) for step in repaired.steps] == [("V101", {"export.opset": 21})]
    assert repaired.repaired
    assert (repaired.last.record.exit_code, repaired.last.record.targets[0].status) == (
        0,
        "verified",
    )


def test_this_test_s_own_python_is_not_a_stage_s(outcome: RunOutcome, home: Path) -> None:
    environments = list_environments(home)
    assert len(environments) >= 3
    for folder, _ in environments:
        assert (folder / "bin" / "python").exists()
        assert str(folder / "bin") not in sys.path
        assert not list(folder.glob("lib/python*/site-packages/convkit*"))
