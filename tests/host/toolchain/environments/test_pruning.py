import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from held_environments import release_all
from other_processes import ended_with_the_test

import convkit
from convkit.host.toolchain.environments import environment_use
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    environments_folder,
    existing_environment,
    lock_file,
)
from convkit.host.toolchain.environments.environment_use import hold, in_use
from convkit.host.toolchain.environments.pruning import finished_environments, leftovers, prune
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import resolution_file, resolve

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ROOT = str(Path(convkit.__file__).parents[1])
DAY = 86400.0
SPEC = EnvironmentSpec(HERE, ("alpha==1.0",))


def build(home: Path, version: str = "1.0") -> Path:
    """Build an environment, let go of it, and return its folder."""
    resolution = resolve(EnvironmentSpec(HERE, (f"alpha=={version}",)), home)
    ensure_environment(resolution, home, progress=lambda _message: None)
    release_all()
    return environments_folder(home) / resolution.digest


def age(folder: Path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(folder / MARKER, (then, then))


def test_what_stands_is_listed_with_its_resolutions(wheels: Path, tmp_path: Path) -> None:
    old, new = build(tmp_path, "1.0"), build(tmp_path, "1.1")
    age(old, 3)
    first, second = finished_environments(tmp_path)
    assert (first.folder, second.folder) == (new, old)
    assert (second.key, second.python, second.packages) == (old.name, HERE, {"alpha": "1.0"})
    assert second.bytes > 1000
    assert time.time() - second.last_used == pytest.approx(3 * DAY, abs=60)
    assert second.resolutions == (resolution_file(SPEC, tmp_path).name,)
    assert (second.in_use, second.recipes) == (False, ())


def test_being_handed_out_counts_as_use(wheels: Path, tmp_path: Path) -> None:
    folder = build(tmp_path)
    age(folder, 60)
    ensure_environment(resolve(SPEC, tmp_path), tmp_path, progress=lambda _message: None)
    assert finished_environments(tmp_path)[0].in_use
    assert prune(tmp_path, unused_seconds=0) == ()
    release_all()
    assert not in_use(folder / MARKER)
    assert prune(tmp_path, unused_seconds=30 * DAY) == ()  # used just now
    assert folder.is_dir()


@pytest.mark.thorough
def test_only_what_was_not_used_for_so_long_goes(wheels: Path, tmp_path: Path) -> None:
    old, new = build(tmp_path, "1.0"), build(tmp_path, "1.1")
    age(old, 31)
    age(new, 29)
    (would,) = prune(tmp_path, unused_seconds=30 * DAY, dry_run=True)
    assert old.is_dir()
    (went,) = prune(tmp_path, unused_seconds=30 * DAY)
    assert went == would
    assert (went.kind, went.path) == ("environment", old)
    assert went.bytes > 1000
    assert not old.exists()
    assert new.is_dir()
    assert resolution_file(SPEC, tmp_path).is_file()  # the recipe keeps its tools
    assert existing_environment(resolve(SPEC, tmp_path), tmp_path) is None
    assert build(tmp_path) == old  # and gets them again


@pytest.mark.thorough
def test_resolutions_that_lead_nowhere_go_where_that_is_asked_for(
    wheels: Path, tmp_path: Path
) -> None:
    old, new = build(tmp_path, "1.0"), build(tmp_path, "1.1")
    age(old, 31)
    removed = prune(tmp_path, unused_seconds=30 * DAY, resolutions=True, dry_run=True)
    assert prune(tmp_path, unused_seconds=30 * DAY, resolutions=True) == removed
    assert [removal.kind for removal in removed] == ["environment", "resolution"]
    assert not resolution_file(SPEC, tmp_path).exists()
    assert len(list((tmp_path / "resolutions").glob("*.txt"))) == 1
    assert finished_environments(tmp_path)[0].folder == new


HOLDER = """
import sys, time
from pathlib import Path
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.environments.sealing import MARKER
from convkit.host.toolchain.versions.version_resolution import resolve
home = Path(sys.argv[2])
spec = EnvironmentSpec(sys.argv[1], ("alpha==1.0",))
ensure_environment(resolve(spec, home), home, progress=print)
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.thorough
def test_another_process_holds_its_environment_until_it_is_killed(
    wheels: Path, tmp_path: Path
) -> None:
    folder = build(tmp_path)
    age(folder, 60)
    command = [sys.executable, "-c", HOLDER, HERE, str(tmp_path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ROOT}
    )
    with ended_with_the_test(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        age(folder, 60)
        assert in_use(folder / MARKER)
        assert prune(tmp_path, unused_seconds=0) == ()
        process.kill()
    (went,) = prune(tmp_path, unused_seconds=0)
    assert went.path == folder


@pytest.mark.thorough
def test_while_it_is_removed_nobody_gets_it(wheels: Path, tmp_path: Path) -> None:
    folder = build(tmp_path)
    with environment_use.alone(folder / MARKER) as free:
        assert free
        assert not hold(folder / MARKER)
    assert hold(folder / MARKER)
    with environment_use.alone(folder / MARKER) as free:
        assert not free


@pytest.mark.thorough
def test_a_marker_that_is_gone_cannot_be_held_and_a_new_one_is_another(
    wheels: Path, tmp_path: Path
) -> None:
    folder = build(tmp_path)
    assert hold(folder / MARKER)
    shutil.rmtree(folder)
    assert not hold(folder / MARKER)
    build(tmp_path)
    assert hold(folder / MARKER)
    assert in_use(folder / MARKER)


@pytest.mark.thorough
def test_leftovers_go_but_not_what_is_being_built(wheels: Path, tmp_path: Path) -> None:
    folder = build(tmp_path)
    staging = folder.with_name(f"{folder.name}.123.staging")
    halved = environments_folder(tmp_path) / ("ab" * 32)
    for left in (staging, halved):
        left.mkdir()
        (left / "file").write_text("x" * 100)
    with FileLock(lock_file(folder)):
        assert leftovers(tmp_path) == (halved,)
        assert [removal.path for removal in prune(tmp_path, unused_seconds=DAY, dry_run=True)] == [
            halved
        ]
    assert set(leftovers(tmp_path)) == {staging, halved}
    went = prune(tmp_path, unused_seconds=DAY)
    assert {(removal.kind, removal.path, removal.bytes) for removal in went} == {
        ("leftover", staging, 100),
        ("leftover", halved, 100),
    }
    assert folder.is_dir()
    assert leftovers(tmp_path) == ()


def test_a_home_with_nothing_in_it(tmp_path: Path) -> None:
    assert finished_environments(tmp_path) == leftovers(tmp_path) == ()
    assert prune(tmp_path, unused_seconds=0, resolutions=True) == ()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_marker_that_others_own_is_used_all_the_same(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(environment_use.os, "utime", refuse)
    assert hold(folder / MARKER)
    assert in_use(folder / MARKER)


@pytest.mark.thorough
def test_where_there_are_no_locks_nothing_is_removed(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = build(tmp_path)
    monkeypatch.setattr(
        environment_use.fcntl, "flock", _no_locks(environment_use.fcntl.flock, folder)
    )
    assert hold(folder / MARKER)
    release_all()
    assert prune(tmp_path, unused_seconds=0) == ()
    assert folder.is_dir()


def _no_locks(flock: Callable[[int, int], None], folder: Path) -> Callable[[int, int], None]:
    """Return a flock that refuses markers, as a filesystem without locks does."""

    def refuse(descriptor: int, kind: int) -> None:
        if os.fstat(descriptor).st_ino == (folder / MARKER).stat().st_ino:
            raise OSError(errno.ENOLCK, "no locks available")
        flock(descriptor, kind)

    return refuse
