"""`convkit env`: list, prune, verify, on environments of small wheels."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from held_environments import release_all
from typer.testing import CliRunner, Result
from wheel_folder import write_wheel

from convkit.cli.main import app
from convkit.host.store.digests import write_json
from convkit.host.store.store import StageRecord, Store
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    environments_folder,
)
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import UsageError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with one environment, which nobody uses."""
    write_wheel(tmp_path / "wheels", "alpha", "1.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    root = tmp_path / "home"
    ensure_environment(
        resolve(EnvironmentSpec(HERE, ("alpha",)), root), root, progress=lambda _message: None
    )
    release_all()
    yield root
    release_all()


def convkit(*arguments: str, home: Path) -> Result:
    return CliRunner().invoke(app, ["env", *arguments, "--home", str(home)])


def folder(home: Path) -> Path:
    (marker,) = environments_folder(home).glob(f"*/{MARKER}")
    return marker.parent


def record_use(home: Path, recipe: str, packages: dict[str, str]) -> None:
    parts = {
        "tools.python": HERE,
        **{f"tools.{name}": version for name, version in packages.items()},
        "seed": "0",
    }
    artifact = "0" * 64
    record = StageRecord("k" * 64, "export", "export", parts, {}, artifact, {}, (), {}, 1.0, 1, 1.0)
    store = Store(home / "store")
    write_json(home / "store" / "artifacts" / f"{artifact}.json", {})
    store.put_record(record, "")
    store.set_latest(recipe, "export", record.key)


def test_list_names_size_use_recipe_and_leftovers(home: Path) -> None:
    record_use(home, "small", {"alpha": "1.0"})
    staging = environments_folder(home) / f"{folder(home).name}.1.staging"
    staging.mkdir()
    printed = convkit("list", home=home)
    assert printed.exit_code == 0
    assert "1 environment, " in printed.output
    assert f"left by a killed build: {staging.name}" in printed.output
    assert "small" in printed.output
    listed = json.loads(convkit("list", "--json", home=home).output)
    (entry,) = listed["environments"]
    assert entry["key"] == folder(home).name
    assert (entry["python"], entry["packages"], entry["in_use"]) == (HERE, {"alpha": "1.0"}, False)
    assert (entry["recipes"], len(entry["resolutions"])) == (["small"], 1)
    assert listed["leftovers"] == [str(staging)]


def test_a_recipe_of_other_tools_is_not_named(home: Path) -> None:
    record_use(home, "small", {"alpha": "2.0"})
    assert (
        json.loads(convkit("list", "--json", home=home).output)["environments"][0]["recipes"] == []
    )


@pytest.mark.thorough
def test_prune_keeps_what_is_young_and_says_what_it_freed(home: Path) -> None:
    assert "0.0 MB freed" in convkit("prune", home=home).output
    then = time.time() - 31 * 86400
    os.utime(folder(home) / MARKER, (then, then))
    dry = convkit("prune", "--dry-run", home=home)
    assert f"environment {folder(home).name[:12]}: " in dry.output
    assert "would be freed" in dry.output
    assert folder(home).is_dir()
    assert convkit("prune", "--older-than", "5w", home=home).stdout == "0.0 MB freed\n"
    assert convkit("prune", "--older-than", "30d", home=home).exit_code == 0
    assert list(environments_folder(home).glob(f"*/{MARKER}")) == []
    assert list((home / "resolutions").glob("*.txt"))


@pytest.mark.thorough
def test_prune_all_takes_the_young_and_the_resolutions(home: Path) -> None:
    printed = convkit("prune", "--all", home=home)
    assert printed.exit_code == 0
    assert [line.split()[0] for line in printed.stdout.splitlines()[:2]] == [
        "environment",
        "resolution",
    ]
    assert list((home / "resolutions").glob("*.txt")) == []


@pytest.mark.parametrize("age", ["soon", "30", "-1d", "d"])
@pytest.mark.sampled(2)
def test_an_age_that_is_none(home: Path, age: str) -> None:
    result = convkit("prune", f"--older-than={age}", home=home)
    assert isinstance(result.exception, UsageError)
    assert "--older-than" in str(result.exception)


@pytest.mark.thorough
def test_verify_exits_with_1_and_names_the_file(home: Path) -> None:
    intact = convkit("verify", home=home)
    assert (intact.exit_code, intact.output) == (0, "1 environment: intact\n")
    (module,) = folder(home).glob("lib/python*/site-packages/alpha/__init__.py")
    module.write_text("changed")
    for arguments in (["verify"], ["verify", folder(home).name[:6]]):
        damaged = convkit(*arguments, home=home)
        assert damaged.exit_code == 1
        assert "alpha/__init__.py: changed" in damaged.output
        assert "1 damaged" in damaged.output


@pytest.mark.thorough
def test_verify_of_a_key_that_is_not_there_names_those_that_are(home: Path) -> None:
    result = convkit("verify", "zzz", home=home)
    assert isinstance(result.exception, UsageError)
    assert folder(home).name[:12] in str(result.exception)
