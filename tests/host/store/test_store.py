import errno
import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from convkit.host.store.digests import DigestCache, digest_json
from convkit.host.store.store import StageRecord, Store
from convkit.protocol.errors import StoreError


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


def test_an_artifact_comes_back_under_its_names(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="weights", deep__er="text"))
    view = store.view(artifact)
    assert (view / "model").read_text() == "weights"
    assert (view / "deep" / "er").read_text() == "text"
    assert store.holds(artifact)
    assert list(store.verify()) == []


def test_the_digest_is_of_names_and_contents_alone(store: Store, tmp_path: Path) -> None:
    one = store.take_in(fill(tmp_path / "one", a="x", b="y"))
    same = store.take_in(fill(tmp_path / "two", b="y", a="x"))
    exchanged = store.take_in(fill(tmp_path / "three", a="y", b="x"))
    assert one == same
    assert one != exchanged


def test_objects_are_read_only_and_stored_once(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", a="same", b="same"))
    assert store.size() == (1, 4)
    mode = store.object(store.files(artifact)["a"].sha256).stat().st_mode
    assert mode & 0o222 == 0


def test_a_hard_link_handed_in_does_not_share_bytes_with_its_origin(
    store: Store, tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    origin.write_text("first")
    (tmp_path / "in").mkdir()
    os.link(origin, tmp_path / "in" / "model")
    artifact = store.take_in(tmp_path / "in")
    origin.write_text("other")
    assert (store.view(artifact) / "model").read_text() == "first"
    assert list(store.verify()) == []


def test_symbolic_links_are_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc/hostname")
    with pytest.raises(StoreError, match="only leave plain files"):
        store.take_in(tmp_path / "in")


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove"])
def test_verify_names_the_damaged_object_and_holds_notices_what_a_size_shows(
    store: Store, tmp_path: Path, harm: str
) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="weights"))
    store.put_record(record(artifact), "log")
    place = store.object(store.files(artifact)["model"].sha256)
    place.chmod(0o644)
    match harm:
        case "flip":
            place.write_text("Weights")
        case "truncate":
            place.write_text("wei")
        case "remove":
            place.unlink()
    damaged = list(store.verify())
    assert damaged
    assert any(place.name in damage.path or place.name[:12] in damage.problem for damage in damaged)
    assert store.record("k1") is None


def test_verify_finds_a_forged_manifest_and_a_broken_record(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="weights"))
    store.put_record(record(artifact), "log")
    manifest = store.root / "artifacts" / f"{artifact}.json"
    manifest.write_text(json.dumps({"other": json.loads(manifest.read_text())["model"]}))
    (store.root / "stages" / "broken.json").write_text("{")
    problems = [damage.problem for damage in store.verify()]
    assert any("does not match the digest" in problem for problem in problems)
    assert any("not a readable stage record" in problem for problem in problems)


def test_a_record_is_a_hit_only_under_its_own_key(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="weights"))
    store.put_record(record(artifact), "the log")
    assert store.record("k1") == record(artifact)
    assert store.log("k1") == "the log"
    (store.root / "stages" / "k2.json").write_text((store.root / "stages" / "k1.json").read_text())
    assert store.record("k2") is None


def test_latest_remembers_per_recipe(store: Store, tmp_path: Path) -> None:
    artifact = store.take_in(fill(tmp_path / "in", model="weights"))
    store.put_record(record(artifact), "")
    store.set_latest("bert", "verify:a@==1.2.*", "k1")
    assert store.latest("bert", "verify:a@==1.2.*") == record(artifact)
    assert store.latest("other", "verify:a@==1.2.*") is None


STAGING = """
import pathlib, sys
from convkit.host.store.store import Store
with Store(pathlib.Path(sys.argv[1])).staging() as folder:
    (folder / "half").write_text("half-written")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other(store: Store) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that works in a staging folder, and that folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", STAGING, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process, Path(process.stdout.readline().strip())
    process.kill()
    process.communicate()


def test_sweep_spares_the_living_and_clears_what_the_killed_left(
    store: Store, other: tuple[subprocess.Popen[str], Path]
) -> None:
    process, folder = other
    with store.staging() as mine:
        assert store.sweep() == 0
        assert mine.is_dir()
        assert (folder / "half").is_file()
        process.kill()
        process.wait()
        assert store.sweep() == 1
        assert not folder.exists()
        assert mine.is_dir()
    assert list((store.root / "staging").iterdir()) == []


def test_sweep_spares_processes_of_other_hosts_and_containers(
    store: Store, other: tuple[subprocess.Popen[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the other's process number mocked away, as in its own container."""

    def nobody(_process: int, _signal: int) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", nobody)
    assert store.sweep() == 0
    assert (other[1] / "half").read_text() == "half-written"


def test_staging_of_earlier_releases_goes_when_it_is_a_day_old(store: Store) -> None:
    young, old = (store.root / "staging" / name for name in ("12-young", "13-old"))
    for folder in (young, old):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 90_000,) * 2)
    assert store.sweep() == 1
    assert young.is_dir()
    assert not old.exists()


def test_without_locks_mocked_away_nothing_of_others_is_removed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with store.staging() as mine:
        assert store.sweep() == 0
        assert mine.is_dir()


def test_taking_in_from_many_threads_at_once(store: Store, tmp_path: Path) -> None:
    folders = [fill(tmp_path / f"in{i}", a="x" * 1000, b=str(i % 3)) for i in range(12)]
    threads = [threading.Thread(target=store.take_in, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(store.verify()) == []
    assert store.size()[0] == 4


KILLED = """
import sys, pathlib
from convkit.host.store.store import Store
store = Store(pathlib.Path(sys.argv[1]))
for number in range(100000):
    folder = pathlib.Path(sys.argv[2]) / str(number)
    folder.mkdir(parents=True)
    (folder / "model").write_bytes(bytes(f"{number}", "ascii") * 50000)
    print(store.take_in(folder), flush=True)
"""


@pytest.mark.parametrize("delay", [0.05, 0.11, 0.17, 0.23])
def test_a_kill_at_any_moment_leaves_only_whole_objects(
    store: Store, tmp_path: Path, delay: float
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(store.root), str(tmp_path / "work")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline().strip()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.holds(first)
    assert list(store.verify()) == []


def test_the_digest_cache_notices_a_change(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "digests")
    path = tmp_path / "weights"
    path.write_text("one")
    os.utime(path, (1_000_000, 1_000_000))
    before = cache.file(path)
    assert cache.file(path) == before
    path.write_text("two")
    os.utime(path, (1_000_001, 1_000_001))
    assert cache.file(path) != before


def test_a_file_changed_just_now_is_not_remembered(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "digests")
    path = tmp_path / "weights"
    path.write_text("one")
    before = cache.file(path)
    status = path.stat()
    path.write_text("two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.file(path) != before


def test_a_tree_is_its_names_and_contents(tmp_path: Path) -> None:
    cache = DigestCache(tmp_path / "digests")
    one = cache.tree(fill(tmp_path / "one", a="x", sub__b="y"))
    assert cache.tree(fill(tmp_path / "two", a="x", sub__b="y", __pycache____c="z")) == one
    assert cache.tree(fill(tmp_path / "three", a="y", sub__b="x")) != one


def test_a_files_bytes_are_digested_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking in digests them; views, copies and later processes rely on the file's status."""
    digested = []
    digest = hashlib.file_digest

    def counted(stream: BinaryIO, name: str) -> object:
        digested.append(stream.name)
        return digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    artifact = store.take_in(fill(tmp_path / "in", weights="weights " * 4096))
    later = Store(store.root)
    assert later.holds(artifact)
    later.view(artifact)
    later.copy_into(artifact, tmp_path / "copy")
    assert digested == [str(tmp_path / "in" / "weights")]


def test_digest_json_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_json({"a": 1, "b": [1, 2]}) == digest_json({"b": [1, 2], "a": 1})
    assert digest_json({"a": 1}) != digest_json({"a": 1.5})
