"""Environments share files: each once, by its digest, and no edit spreads."""

import errno
import os
import sys
from pathlib import Path

import pytest
from held_environments import release_all
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.toolchain.environments import shared_files
from convkit.host.toolchain.environments.environment_builds import (
    ensure_environment,
    environments_folder,
)
from convkit.host.toolchain.environments.pruning import disk_usage, prune
from convkit.host.toolchain.environments.sealing import verify_environment
from convkit.host.toolchain.environments.shared_files import collect, shared_folder
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.environment_seal import digest_entry

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
ALPHA = Resolution(HERE, {"alpha": "1.0"})
BOTH = Resolution(HERE, {"alpha": "1.0", "beta": "1.0"})


def build(resolution: Resolution, home: Path) -> Path:
    """Build an environment, or return the existing one; return its folder."""
    python = ensure_environment(resolution, home, progress=lambda _: None).python
    release_all()
    return python.parents[1]


def module(folder: Path, package: str = "alpha") -> Path:
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages / package / "__init__.py"


def edit(file: Path) -> None:
    """Write to a file in place, although it is read-only."""
    file.chmod(0o644)
    file.write_text(file.read_text().replace("1.0", "6.6"))


def test_a_package_s_file_is_on_disk_once(wheels: Path, tmp_path: Path) -> None:
    folders = [build(ALPHA, tmp_path / "one"), build(BOTH, tmp_path / "one")]
    folders.append(build(ALPHA, tmp_path / "two"))
    first, *others = map(module, folders)
    assert all(first.samefile(other) for other in others)
    assert first.stat().st_mode & 0o222 == 0, "an editor says so"
    assert not module(folders[1], "beta").samefile(first)
    assert all(verify_environment(folder) == () for folder in folders)
    apart = sum(disk_usage([folder]) for folder in folders)
    assert disk_usage(folders) < apart


def test_what_belongs_to_one_environment_is_not_shared(wheels: Path, tmp_path: Path) -> None:
    folder = build(ALPHA, tmp_path)
    own = [folder / "pyvenv.cfg", folder / "convkit.json", folder / "bin" / "say-alpha"]
    (record,) = folder.glob("lib/python*/site-packages/alpha-1.0.dist-info/RECORD")
    assert [path.stat().st_nlink for path in [*own, record]] == [1, 1, 1, 1]


def test_an_edit_is_named_wherever_the_file_is_and_reaches_no_new_environment(
    wheels: Path, tmp_path: Path
) -> None:
    folders = [build(ALPHA, tmp_path), build(BOTH, tmp_path)]
    edit(module(folders[0]))
    assert "6.6" in module(folders[1]).read_text(), "or this test shows nothing"
    for folder in folders:
        assert [wrong.path for wrong in verify_environment(folder)] == [
            module(folder).relative_to(folder).as_posix()
        ]
    new = build(ALPHA, tmp_path / "elsewhere")
    assert "1.0" in module(new).read_text()
    assert verify_environment(new) == ()
    removed = CliRunner().invoke(app, ["env", "verify", "--home", str(tmp_path), "--remove"])
    assert "2 damaged" in removed.output
    assert verify_environment(build(BOTH, tmp_path)) == ()


def test_files_that_no_environment_has_are_removed_and_others_stay(
    wheels: Path, tmp_path: Path
) -> None:
    build(ALPHA, tmp_path / "one")
    both = build(BOTH, tmp_path / "two")
    beta = module(both, "beta").stat().st_size
    shared = shared_folder(tmp_path)
    left = prune(tmp_path / "two", unused_seconds=0, dry_run=True)
    assert beta <= left[0].bytes < disk_usage([both]), "alpha stays, for the other home"
    assert prune(tmp_path / "two", unused_seconds=0) == left
    texts = [file.read_text() for file in (shared / "files").glob("*/*")]
    assert any("VERSION" in text for text in texts)
    assert not any("beta" in text for text in texts)
    prune(tmp_path / "one", unused_seconds=0)
    assert list((shared / "files").glob("*/*")) == []


def test_bytecode_goes_with_its_source(wheels: Path, tmp_path: Path) -> None:
    folder = build(ALPHA, tmp_path)
    bytecode = folder / "bytecode"
    sources = list((shared_folder(tmp_path) / "files").glob("*/*"))
    for digest in (sources[0].name, "f" * 64):
        (bytecode / digest[:2]).mkdir(exist_ok=True)
        (bytecode / digest[:2] / f"{digest}.cpython-311.pyc").write_bytes(b"")
    collect(shared_folder(tmp_path))
    assert [file.name.partition(".")[0] for file in bytecode.glob("*/*")] == [sources[0].name]


def test_nothing_is_collected_while_an_environment_is_built(wheels: Path, tmp_path: Path) -> None:
    from convkit.host.store.process_locks import HeldLock

    build(ALPHA, tmp_path / "one")
    shared = shared_folder(tmp_path)
    unused = shared / "files" / "ab" / "unused"
    unused.parent.mkdir(exist_ok=True)
    unused.write_text("being linked")
    with HeldLock.shared(shared / ".lock"):
        assert collect(shared) == 0
    assert unused.exists()
    assert collect(shared) == len("being linked")


@pytest.mark.parametrize("number", [errno.EPERM, errno.EXDEV, errno.EMLINK])
@pytest.mark.sampled(2)
def test_without_hard_links_mocked_away_environments_are_copies(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    folder = build(ALPHA, tmp_path)
    assert module(folder).stat().st_nlink == 1
    assert verify_environment(folder) == ()
    assert verify_environment(build(BOTH, tmp_path)) == ()


def test_a_home_on_a_filesystem_of_its_own_keeps_shared_files_to_itself(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVKIT_CACHE", "/dev/shm/convkit-of-this-test")
    assert shared_folder(tmp_path) == environments_folder(tmp_path) / ".shared"
    build(ALPHA, tmp_path)
    assert not Path("/dev/shm/convkit-of-this-test").exists()
    assert CliRunner().invoke(app, ["env", "list", "--home", str(tmp_path)]).exit_code == 0
    assert [removal.kind for removal in prune(tmp_path, unused_seconds=0)] == ["environment"]


def test_users_without_a_writable_cache_mocked_by_access_keep_shared_files_in_the_home(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = environments_folder(tmp_path) / ".shared"
    monkeypatch.setenv("CONVKIT_CACHE", "~nobody-of-this-name/cache")
    assert shared_folder(tmp_path) == own
    monkeypatch.setenv("CONVKIT_CACHE", str(tmp_path / "cache"))
    assert shared_folder(tmp_path) == tmp_path / "cache"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert shared_folder(tmp_path) == own


@pytest.mark.thorough
def test_a_file_is_digested_once_for_all_environments_of_a_process(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[str] = []

    def digest(file: str) -> str:
        digested.append(file)
        return digest_entry(file)

    build(ALPHA, tmp_path / "one")
    monkeypatch.setattr(shared_files, "digest_entry", digest)
    shared = module(build(BOTH, tmp_path / "one"))
    files = shared_folder(tmp_path) / "files"
    assert digested, "beta's files, as they are added"
    assert all(Path(file).name.endswith(".part") for file in digested)
    digested.clear()
    (entry,) = (each for each in files.glob("*/*") if each.samefile(shared))
    shared_files._WHOLE.clear()  # as a new process
    build(ALPHA, tmp_path / "two")
    assert str(entry) in digested


def test_an_edit_with_its_time_restored_reaches_no_environment_of_this_process(
    wheels: Path, tmp_path: Path
) -> None:
    first = module(build(ALPHA, tmp_path / "one"))
    status = first.stat()
    edit(first)
    first.chmod(status.st_mode)
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert first.stat().st_size == status.st_size, "or this test shows less"
    assert "1.0" in module(build(ALPHA, tmp_path / "two")).read_text()


@pytest.mark.thorough
def test_an_edit_while_a_file_is_linked_is_not_taken_for_whole_mocked_link(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def edit_first(source: str, place: str) -> None:
        if Path(place).name == "__init__.py":
            edit(Path(source))
        link(source, place)

    build(ALPHA, tmp_path / "one")
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", edit_first)
        assert "6.6" in module(build(ALPHA, tmp_path / "two")).read_text(), "or no edit came"
    assert "1.0" in module(build(ALPHA, tmp_path / "three")).read_text()
