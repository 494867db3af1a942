"""Damage to every part of the store: noticed, named, and healed or ignored."""

import dataclasses
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from convkit.host.store.digests import DigestCache, digest_file, write_json
from convkit.host.store.durable_files import copy_file
from convkit.host.store.store import StageRecord, Store
from convkit.protocol.errors import ENVIRONMENT_ERRNOS, StoreError, storage_error

BIG = "weights " * 4096  # more than the cache of digests finds worth remembering


def fill(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def record(artifact: str, key: str = "k1") -> StageRecord:
    return StageRecord(key, "export", "export", {"a": "1"}, {}, artifact, None, (), {}, 1.0, 0, 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit of a file in place and set its modification time back."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("text", ["small", BIG])
def test_a_damaged_object_is_no_hit_and_the_next_one_replaces_it(
    store: Store, tmp_path: Path, text: str
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model=text))
    store.put_record(record(artifact), "log")
    assert store.record("k1") is not None
    place = store.object(store.files(artifact)["model"].sha256)
    flip(place)
    assert not store.holds(artifact)
    assert store.record("k1") is None
    with pytest.raises(StoreError, match=place.name):
        store.copy_into(artifact, tmp_path / "run")
    assert store.take_in(fill(tmp_path / "again", model=text)) == artifact
    assert place.read_text() == text
    assert store.record("k1") is not None
    assert list(store.verify()) == []


@pytest.mark.parametrize("text", ["small", BIG])
def test_a_damaged_view_is_named_and_made_anew(store: Store, tmp_path: Path, text: str) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model=text, other="x"))
    view = store.view(artifact)
    flip(view / "model")
    assert [damage.path for damage in store.verify()] == [str(view / "model")]
    assert store.holds(artifact), "a view shares no bytes with the store"
    assert (store.view(artifact) / "model").read_text() == text
    (view / "other").chmod(0o644)
    (view / "stray").write_text("x")
    (view / "other").unlink()
    assert len(list(store.verify())) == 2
    assert sorted(path.name for path in store.view(artifact).iterdir()) == ["model", "other"]
    assert list(store.verify()) == []


def test_a_view_of_an_earlier_release_which_shares_inodes_is_made_anew(
    store: Store, tmp_path: Path
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    place = store.object(store.files(artifact)["model"].sha256)
    view = store.root / "views" / artifact
    view.mkdir(parents=True)
    os.link(place, view / "model")
    assert not (store.view(artifact) / "model").samefile(place)
    assert (view / "model").stat().st_nlink == 1


def test_views_go_when_nobody_needs_them(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    second = Store(store.root)
    view = store.view(artifact)
    second.view(artifact)
    store.release_views()
    assert view.is_dir()
    second.release_views()
    assert not view.exists()
    assert (store.view(artifact) / "model").read_text() == "x"


@pytest.mark.parametrize("at", [0.02, 0.3, 0.5, 0.7, 0.98])
def test_a_damaged_stage_record_is_no_hit_and_is_named(
    store: Store, tmp_path: Path, at: float
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    store.put_record(record(artifact), "the log of a stage")
    path = store.root / "stages" / "k1.json"
    flip(path, int(path.stat().st_size * at))
    assert store.record("k1") is None
    assert store.log("k1") == ""
    assert [damage.path for damage in store.verify()] == [str(path)]


def test_an_edited_number_in_a_stage_record_is_noticed(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    store.put_record(dataclasses.replace(record(artifact), result={"max_abs": 0.0246}), "")
    path = store.root / "stages" / "k1.json"
    path.write_text(path.read_text().replace("0.0246", "0.0001"))
    assert store.record("k1") is None
    (damage,) = store.verify()
    assert "its contents do not match the digest in it" in damage.problem


def test_records_of_earlier_releases_are_neither_hits_nor_damage(
    store: Store, tmp_path: Path
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    for place, value in (
        ("stages/k1.json", record(artifact)),
        ("latest/bert/export.json", {"key": "k1"}),
        ("runs/r1.json", "/somewhere"),
        ("digests/d1.json", {"stamp": [], "sha256": "0"}),
    ):
        write_json(store.root / place, value)
    assert store.record("k1") is None
    assert store.latest("bert", "export") is None
    assert store.settled_run("r1", "c1") is None
    assert list(store.verify()) == []


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b'{"sha256": 3}', b"\xff\xfe", b"null"]
)
@pytest.mark.parametrize("place", ["latest/bert/export", "runs/r1", "stages/k1"])
def test_damaged_memories_are_forgotten_and_named(
    store: Store, tmp_path: Path, place: str, content: bytes
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    store.put_record(record(artifact), "")
    store.set_latest("bert", "export", "k1")
    store.settle_run("r1", tmp_path / "run", "c1")
    path = store.root / f"{place}.json"
    path.write_bytes(content)
    assert [damage.path for damage in store.verify()] == [str(path)]
    store.put_record(record(artifact), "")
    store.set_latest("bert", "export", "k1")
    store.settle_run("r1", tmp_path / "run", "c1")
    assert store.latest("bert", "export") == record(artifact)
    assert list(store.verify()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"stamp": [], "sha256": []}', b"\xff"])
def test_a_damaged_memory_of_a_digest_is_renewed(
    store: Store, tmp_path: Path, content: bytes
) -> None:
    path = fill(tmp_path, weights=BIG) / "weights"
    store.digests.remember(path, digest_file(path))
    (entry,) = (store.root / "digests").iterdir()
    entry.write_bytes(content)
    assert store.digests.file(path) == digest_file(path)


def test_a_wrong_digest_that_is_remembered_is_noticed_by_its_seal(
    store: Store, tmp_path: Path
) -> None:
    path = fill(tmp_path, weights=BIG) / "weights"
    store.digests.remember(path, digest_file(path))
    (entry,) = (store.root / "digests").iterdir()
    entry.write_text(entry.read_text().replace(digest_file(path), "0" * 64))
    assert store.digests.file(path) == digest_file(path)


def test_an_edit_that_sets_the_modification_time_back_is_noticed(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "digests")
    path = fill(tmp_path, weights=BIG) / "weights"
    os.utime(path, (1_000_000, 1_000_000))
    while not list((tmp_path / "digests").glob("*")):  # until the digest is remembered
        before = cache.file(path)
    flip(path)
    assert path.stat().st_mtime == 1_000_000
    assert cache.file(path) == digest_file(path) != before


def test_a_digest_is_read_from_memory_while_the_file_is_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = DigestCache(tmp_path / "digests")
    path = fill(tmp_path, weights=BIG) / "weights"
    cache.remember(path, digest_file(path))
    expected = digest_file(path)
    monkeypatch.setattr(
        "convkit.host.store.digests.digest_file", lambda _: pytest.fail("read again")
    )
    assert cache.file(path) == expected


def test_copies_share_no_inode_with_the_store(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model=BIG))
    store.copy_into(artifact, tmp_path / "run")
    copy = tmp_path / "run" / "model"
    assert copy.stat().st_nlink == 1
    assert not copy.is_symlink()
    copy.write_text("edited by its owner")
    assert store.holds(artifact)


def test_reflinks_are_used_where_the_mocked_filesystem_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def clone(written: int, request: int, read: int) -> None:
        asked.append(request)
        os.write(written, os.read(read, 100))

    source = fill(tmp_path, one="bytes") / "one"
    copy_file(source, tmp_path / "two")
    monkeypatch.setattr(fcntl, "ioctl", clone)
    assert copy_file(source, tmp_path / "three")
    assert asked == [0x40049409]
    assert {(tmp_path / name).read_text() for name in ("two", "three")} == {"bytes"}


def test_a_moved_home_still_knows_its_settled_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = Store(home / "store")
    folder = home / "runs" / "bert" / "1"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    store.settle_run("r1", folder, "c1")
    home.rename(tmp_path / "moved")
    moved = Store(tmp_path / "moved" / "store").settled_run("r1", "c1")
    assert moved == tmp_path / "moved" / "runs" / "bert" / "1"


FILE_LIMIT = """
import resource, pathlib, sys
from convkit.protocol.errors import StoreError
from convkit.host.store.store import Store
root = pathlib.Path(sys.argv[1])
(root / "in").mkdir()
(root / "in" / "small").write_text("x")
store = Store(root / "store")
artifact = store.take_in(root / "in")
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    store.put_record(sys.modules["convkit.host.store.stage_records"].StageRecord(
        "k1", "export", "export", {}, {}, artifact, None, (), {}, 1.0, 0, 0.0), "")
except StoreError as error:
    print(error)
"""


def test_a_limit_on_the_size_of_files_is_told_as_such(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "ulimit -f" in done.stdout, done.stderr
    assert not list((tmp_path / "store" / "stages").glob("*"))


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_errors_of_storage_say_what_to_do(number: int) -> None:
    assert number in ENVIRONMENT_ERRNOS
    told = str(storage_error(OSError(number, os.strerror(number)), Path("/home/store")))
    assert "/home/store" in told
    assert any(word in told for word in ("Free some space", "--home")), told


def test_what_is_moved_into_place_is_synced_first(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of system calls, as no test can cut the power."""
    calls: list[tuple[str, int]] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        calls.append(("sync", os.fstat(descriptor).st_ino))
        sync(descriptor)

    def noted_replace(source: Path, place: Path) -> Path:
        calls.append(("replace", source.stat().st_ino))
        return replace(source, place)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    artifact = store.take_in(fill(tmp_path / "in", model="x"))
    store.put_record(record(artifact), "")
    moved = [inode for name, inode in calls if name == "replace"]
    assert len(moved) == 3  # an object, the list of files, the record
    for inode in moved:
        after = calls[calls.index(("replace", inode)) :]
        assert ("sync", inode) in calls[: calls.index(("replace", inode))]
        assert after[1][0] == "sync", "the folder's names are synced after the move"
