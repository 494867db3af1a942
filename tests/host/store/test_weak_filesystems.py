"""Filesystems without locks, hard links or reflinks, and clocks that are set back.

What such a filesystem answers is put in the place of the calls: a test cannot mount one.
"""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Never

import pytest
from filelock import SoftFileLock, Timeout
from other_processes import ended_with_the_test

from convkit.host.store import process_locks
from convkit.host.store.digests import DigestCache, digest_file
from convkit.host.store.process_locks import file_lock
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.stage_records import StageRecord
from convkit.host.store.store import Store


def failing(number: int) -> Any:
    def fails(*_: object, **__: object) -> Never:
        raise OSError(number, os.strerror(number))

    return fails


NO_FLOCK = pytest.mark.parametrize(
    "number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK], ids=errno.errorcode.get
)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_locks, "_KNOWS_LOCKS", {})


def fill(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / "model").write_bytes(content)
    return folder


@NO_FLOCK
def test_without_flock_mocked_away_a_lock_keeps_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with file_lock(tmp_path / "one.lock") as held:
        assert isinstance(held, SoftFileLock)
        with pytest.raises(Timeout), file_lock(tmp_path / "one.lock", timeout=0.1):
            pass
    with file_lock(tmp_path / "one.lock", timeout=0.1):
        assert (tmp_path / "one.lock.soft").exists()


HOLDER = """
import errno, fcntl, pathlib, sys, time
def fails(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = fails
from convkit.host.store.process_locks import file_lock
with file_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_without_flock_mocked_away_a_killed_process_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "one.lock")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with ended_with_the_test(holder):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
        with pytest.raises(Timeout), file_lock(tmp_path / "one.lock", timeout=0.1):
            pass
        holder.kill()
    with file_lock(tmp_path / "one.lock", timeout=30):
        pass


def test_a_lock_that_cannot_be_taken_for_another_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        file_lock(tmp_path / "one.lock")


@NO_FLOCK
def test_without_flock_mocked_away_a_store_gives_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(number))
    monkeypatch.setattr(fcntl, "ioctl", failing(errno.EOPNOTSUPP))
    store = Store(tmp_path / "store")
    artifact = store.take_in(fill(tmp_path / "in"))
    assert (store.view(artifact) / "model").read_bytes() == b"weights"
    (store.view(artifact) / "model").chmod(0o644)
    (store.view(artifact) / "model").write_bytes(b"weighty")
    assert (store.view(artifact) / "model").read_bytes() == b"weights"
    store.release_views()
    assert list(store.verify()) == []


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP], ids=errno.errorcode.get
)
def test_without_hard_links_mocked_away_the_first_record_still_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    here, shared = Store(tmp_path / "store"), SharedStore((tmp_path / "shared").as_uri())
    records = []
    for name in ("first", "second"):
        artifact = here.take_in(fill(tmp_path / name, name.encode()))
        shared.push(artifact, here)
        record = StageRecord("key", "export", "export", {}, {}, artifact, None, (), {}, 1.0, 0, 0.0)
        records.append(shared.push_record(record, "log"))
    assert records[1] == records[0]
    there = Store(tmp_path / "there")
    adopted = shared.adopt("key", there)
    assert adopted is not None
    assert (there.view(adopted.artifact) / "model").read_bytes() == b"first"
    assert not list((tmp_path / "shared").rglob("*.part"))


def test_a_link_that_fails_for_another_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convkit.protocol.errors import StoreUnreachable

    here, shared = Store(tmp_path / "store"), SharedStore((tmp_path / "shared").as_uri())
    artifact = here.take_in(fill(tmp_path / "in"))
    monkeypatch.setattr(os, "link", failing(errno.EIO))
    with pytest.raises(StoreUnreachable, match=r"shared.*Input/output error"):
        shared.push(artifact, here)


@pytest.mark.parametrize("hours", [-48.0, -1.0, 48.0], ids=["-2 days", "-1 hour", "+2 days"])
def test_a_clock_that_was_set_hides_no_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """The clock of this process is another than that which stamped the files."""
    cache, path = DigestCache(tmp_path / "digests"), tmp_path / "weights"
    real = time.time
    path.write_bytes(b"a" * 100_000)
    for edit in (b"b", b"c"):
        monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
        assert cache.file(path) == digest_file(path)
        status = path.stat()
        path.write_bytes(edit * 100_000)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10**9))
        monkeypatch.setattr(time, "time", real)
        assert cache.file(path) == digest_file(path)
