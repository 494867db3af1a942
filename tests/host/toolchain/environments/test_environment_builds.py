import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from other_processes import ended_with_the_test
from wheel_folder import write_wheel

import convkit
from convkit.host.toolchain.environments import environment_builds
from convkit.host.toolchain.environments.environment_builds import (
    Environment,
    ensure_environment,
    environments_folder,
    existing_environment,
    list_environments,
)
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve
from convkit.protocol.errors import ToolchainError

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ALPHA = Resolution(HERE, {"alpha": "1.0"})
ROOT = str(Path(convkit.__file__).parents[1])


def quiet(_message: str) -> None:
    """Take no notice of progress."""


def output(environment: Environment, code: str) -> str:
    command = [str(environment.python), "-I", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def module_of(environment: Environment) -> Path:
    return Path(output(environment, "import alpha; print(alpha.__file__)"))


def edit(module: Path) -> None:
    """Write to a file in place, although it is read-only."""
    module.chmod(0o644)
    module.write_text("VERSION = 'edited'\n")


def staging_folders(home: Path) -> list[Path]:
    return [path for path in environments_folder(home).iterdir() if path.name.endswith(".staging")]


def test_an_environment_holds_what_was_asked_for_and_nothing_else(
    wheels: Path, tmp_path: Path
) -> None:
    messages: list[str] = []
    environment = ensure_environment(ALPHA, tmp_path, progress=messages.append)
    assert messages == [
        "building an environment of 1 package",
        "installing 1 package",
        "checking what was installed",
    ]
    assert output(environment, "import alpha; print(alpha.VERSION)") == "1.0"
    listed = output(
        environment, "import importlib.metadata as m; print([d.name for d in m.distributions()])"
    )
    assert listed == "['alpha']"
    assert (environment.key, environment.packages) == (ALPHA.digest, {"alpha": "1.0"})
    assert list_environments(tmp_path) == ((environment.python.parents[1], ALPHA),)
    assert staging_folders(tmp_path) == []


def test_its_scripts_work_after_the_move_into_place(wheels: Path, tmp_path: Path) -> None:
    environment = ensure_environment(ALPHA, tmp_path, progress=quiet)
    said = subprocess.run(
        [environment.python.parent / "say-alpha"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "alpha 1.0\n"


def test_the_second_time_is_a_hit_without_any_process(
    wheels: Path, tmp_path: Path, no_uv: Callable[[], None]
) -> None:
    first = ensure_environment(ALPHA, tmp_path, progress=quiet)
    no_uv()
    messages: list[str] = []
    assert ensure_environment(ALPHA, tmp_path, progress=messages.append) == first
    assert messages == []


def test_specifications_that_resolve_to_the_same_share_one_environment(
    wheels: Path, tmp_path: Path
) -> None:
    specs = [EnvironmentSpec(HERE, ("alpha==1.0",)), EnvironmentSpec(HERE, ("alpha<1.1",))]
    first, second = (
        ensure_environment(resolve(spec, tmp_path), tmp_path, progress=quiet) for spec in specs
    )
    assert first == second
    other = ensure_environment(Resolution(HERE, {"alpha": "1.1"}), tmp_path, progress=quiet)
    assert other.python != first.python


def test_editing_an_environment_leaves_uv_s_cache_alone(wheels: Path, tmp_path: Path) -> None:
    """As it would not with hard links to it, which uv makes by default and in place of clones."""
    first = ensure_environment(ALPHA, tmp_path / "one", progress=quiet)
    edit(module_of(first))
    cached = [path for path in (tmp_path / "uv-cache").rglob("*") if path.is_file()]
    assert module_of(first).name in {path.name for path in cached}
    assert all(path.stat().st_nlink == 1 for path in cached)
    assert not any(b"edited" in path.read_bytes() for path in cached)


@pytest.mark.parametrize("damage", ["marker", "interpreter", "folder"])
@pytest.mark.sampled(2)
def test_a_damaged_environment_is_built_anew(wheels: Path, tmp_path: Path, damage: str) -> None:
    environment = ensure_environment(ALPHA, tmp_path, progress=quiet)
    folder = environment.python.parents[1]
    match damage:
        case "marker":
            (folder / MARKER).unlink()
        case "interpreter":
            environment.python.unlink()
            environment.python.symlink_to(tmp_path / "a Python that was removed")
        case _:
            shutil.rmtree(folder)
    assert existing_environment(ALPHA, tmp_path) is None
    ensure_environment(ALPHA, tmp_path, progress=quiet)
    assert output(environment, "import alpha; print(alpha.VERSION)") == "1.0"


def builder(home: Path, before: str = "") -> subprocess.Popen[str]:
    """Start another process that builds the environment of ALPHA and prints its progress."""
    code = f"""
import sys, time
from pathlib import Path
from convkit.host.toolchain.environments import environment_builds as environments
from convkit.host.toolchain.versions.version_resolution import Resolution
{before}
resolution = Resolution({HERE!r}, {{"alpha": "1.0"}})
environments.ensure_environment(resolution, Path({str(home)!r}), progress=print)
"""
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.thorough
def test_two_processes_build_one_environment_once(wheels: Path, tmp_path: Path) -> None:
    both = [builder(tmp_path), builder(tmp_path)]
    with ended_with_the_test(*both):
        printed = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert "".join(printed).count("building") == 1
    environment = existing_environment(ALPHA, tmp_path)
    assert environment is not None
    assert output(environment, "import alpha; print(alpha.VERSION)") == "1.0"


@pytest.mark.thorough
def test_a_killed_build_leaves_only_a_staging_folder_which_the_next_build_clears(
    wheels: Path, tmp_path: Path
) -> None:
    stuck = "environments._check = lambda *_: (print('installed'), time.sleep(60))"
    process = builder(tmp_path, stuck)
    with ended_with_the_test(process):
        assert process.stdout is not None
        for line in process.stdout:
            if line == "installed\n":
                break
        process.send_signal(signal.SIGKILL)
    assert existing_environment(ALPHA, tmp_path) is None
    assert len(staging_folders(tmp_path)) == 1
    assert list_environments(tmp_path) == ()
    environment = ensure_environment(ALPHA, tmp_path, progress=quiet)
    assert output(environment, "import alpha; print(alpha.VERSION)") == "1.0"
    assert staging_folders(tmp_path) == []


@pytest.mark.thorough
def test_a_failed_build_leaves_nothing_and_says_why(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ToolchainError,
        match=r"installing 1 package failed: the index has no alpha 9\.9 for Python .*: it was",
    ):
        ensure_environment(Resolution(HERE, {"alpha": "9.9"}), tmp_path, progress=quiet)
    assert staging_folders(tmp_path) == []
    assert list_environments(tmp_path) == ()


@pytest.mark.thorough
def test_an_environment_with_other_contents_fails_its_check(wheels: Path, tmp_path: Path) -> None:
    python = ensure_environment(ALPHA, tmp_path, progress=quiet).python
    environment_builds._check(python, ALPHA)
    for packages, words in (
        ({"alpha": "1.1"}, "alpha 1.0 instead of 1.1"),
        ({}, "alpha 1.0 instead of None"),
    ):
        with pytest.raises(ToolchainError, match=words):
            environment_builds._check(python, Resolution(HERE, packages))
    (python.parents[1] / "pyvenv.cfg").write_text("home = /nowhere\n")
    (python.parents[1] / "bin" / "python").unlink()
    python.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    python.chmod(0o755)
    with pytest.raises(ToolchainError, match="does not start: broken"):
        environment_builds._check(python, ALPHA)


def test_a_home_that_cannot_be_written_is_a_users_error(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("a file in the way")
    with pytest.raises(Exception, match="environments") as caught:
        ensure_environment(ALPHA, tmp_path, progress=quiet)
    assert type(caught.value).__name__ == "StoreError"


@pytest.mark.thorough
def test_wheels_are_found_where_pip_is_told_of_them(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(wheels, "gamma", "1.0+local")
    monkeypatch.delenv("UV_FIND_LINKS")
    (tmp_path / "pip.conf").write_text(f"[global]\nfind-links = {wheels}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    resolution = resolve(EnvironmentSpec(HERE, ("gamma",)), tmp_path)
    assert resolution.packages == {"gamma": "1.0+local"}
    environment = ensure_environment(resolution, tmp_path, progress=quiet)
    assert output(environment, "import gamma; print(gamma.VERSION)") == "1.0+local"
    assert str(wheels) not in resolution.text


@pytest.mark.network
@pytest.mark.thorough
def test_the_second_time_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home: nothing is remembered, and uv's cache serves everything."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    spec = EnvironmentSpec(HERE, ("idna==3.*", "packaging>=24"))
    online = resolve(spec, tmp_path / "one")
    ensure_environment(online, tmp_path / "one", progress=quiet)
    monkeypatch.setenv("UV_OFFLINE", "1")
    offline = resolve(spec, tmp_path / "two")
    assert offline == online
    environment = ensure_environment(offline, tmp_path / "two", progress=quiet)
    assert (
        output(environment, "import idna, packaging; print(idna.__version__)")
        == online.packages["idna"]
    )


def test_a_file_with_another_hash_is_not_called_a_network_failure(
    wheels: Path, tmp_path: Path
) -> None:
    replaced = Resolution(HERE, {"alpha": "1.0"}, {"alpha": ("sha256:" + "0" * 64,)})
    with pytest.raises(ToolchainError) as caught:
        ensure_environment(replaced, tmp_path, progress=quiet)
    assert "alpha==1.0 is not the one whose SHA-256 was locked" in str(caught.value)
    assert "network" not in str(caught.value)
