"""Files are digested and copied while their stage runs; what changes afterwards counts anew."""

import types
from pathlib import Path

import pytest

import convkit.host.store.store
from convkit.host.store.digests import digest_file
from convkit.host.store.file_intake import Intake
from convkit.host.store.store import Store


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "weights").write_bytes(b"1" * 100_000)
    (tmp_path / "output" / "graph").write_bytes(b"2" * 100_000)
    return tmp_path / "output"


@pytest.fixture
def intake(tmp_path: Path, output: Path) -> Intake:
    return Intake(output, tmp_path / "copies", lasting=True)


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that the store digests itself."""
    found: list[str] = []

    def digest(path: Path) -> str:
        found.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(convkit.host.store.store, "digest_file", digest)
    return found


def test_a_complete_file_is_neither_digested_nor_copied_again(
    tmp_path: Path, output: Path, intake: Intake, digested: list[str]
) -> None:
    intake.complete("weights")
    (copy,) = intake.copies().values()
    inode = copy.stat().st_ino
    store = Store(tmp_path / "store")
    artifact = store.take_in(output, intake)
    assert digested == ["graph"]
    view = store.view(artifact)
    assert (view / "weights").stat().st_ino == inode
    assert (view / "weights").read_bytes() == b"1" * 100_000
    assert (view / "graph").read_bytes() == b"2" * 100_000
    assert not store.object(digest_file(view / "weights")).samefile(view / "weights")
    assert not list(store.verify())


def test_without_it_the_artifact_is_the_same(tmp_path: Path, output: Path, intake: Intake) -> None:
    intake.complete("weights")
    one = Store(tmp_path / "one").take_in(output, intake)
    output.mkdir(exist_ok=True)
    (output / "weights").write_bytes(b"1" * 100_000)
    (output / "graph").write_bytes(b"2" * 100_000)
    assert Store(tmp_path / "two").take_in(output) == one


def test_a_file_that_changes_later_is_digested_anew(
    tmp_path: Path, output: Path, intake: Intake, digested: list[str]
) -> None:
    intake.complete("weights")
    assert intake.digest(output / "weights") == digest_file(output / "weights")
    with (output / "weights").open("r+b") as file:
        file.write(b"3")
    assert intake.digest(output / "weights") is None
    assert intake.copies() == {}
    store = Store(tmp_path / "store")
    artifact = store.take_in(output, intake)
    assert sorted(digested) == ["graph", "weights"]
    assert (store.view(artifact) / "weights").read_bytes() == b"3" + b"1" * 99_999
    assert not list(store.verify())


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "link", ".", "missing", "\0"])
def test_only_files_of_the_output_count(output: Path, intake: Intake, name: str) -> None:
    """A worker runs tools, which may write anything to its descriptors."""
    (output.parent / "secret").write_bytes(b"4")
    (output / "link").symlink_to(output.parent / "secret")
    intake.complete(name)
    assert intake.copies() == {}


def test_a_copy_that_cannot_be_made_is_made_later(
    tmp_path: Path, output: Path, intake: Intake
) -> None:
    (tmp_path / "copies").write_text("in the way of a folder")
    intake.complete("weights")
    store = Store(tmp_path / "store")
    artifact = store.take_in(output, intake)
    assert (store.view(artifact) / "weights").read_bytes() == b"1" * 100_000


def test_a_full_disk_is_left_to_the_stage(
    output: Path, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = types.SimpleNamespace(free=299_999)
    monkeypatch.setattr("convkit.host.store.file_intake.shutil.disk_usage", lambda _: free)
    intake.complete("weights")
    assert intake.copies() == {}
    assert intake.digest(output / "weights") == digest_file(output / "weights")
    free.free += 1
    intake.complete("graph")
    assert len(intake.copies()) == 1
