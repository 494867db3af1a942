"""Views are read while others ask for the same one."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from convkit.host.store.process_locks import HeldLock
from convkit.host.store.store import Store


@pytest.fixture
def artifact(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "weights").write_bytes(b"1" * 100)
    return Store(tmp_path / "store").take_in(tmp_path / "in")


def test_a_view_that_is_read_is_not_replaced_by_another_that_is_made(
    tmp_path: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that start at once read the same artifact: in one run, and on a fleet's worker."""
    both, read_by_one, fill = threading.Barrier(2), threading.Event(), Store._fill

    def at_the_worst_moment(*arguments: Any) -> None:
        turn = 1
        with contextlib.suppress(threading.BrokenBarrierError):  # one alone, as it should be
            turn = both.wait(0.5)
        if turn == 0:
            read_by_one.wait(0.5)
        fill(*arguments)

    monkeypatch.setattr(Store, "_fill", at_the_worst_moment)
    seen: list[BinaryIO] = []  # kept open: a number of an inode that is gone is given out again

    def read(store: Store) -> None:
        seen.append((store.view(artifact) / "weights").open("rb"))
        read_by_one.set()

    stores = [Store(tmp_path / "store") for _ in range(2)]
    threads = [threading.Thread(target=read, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {os.fstat(each.fileno()).st_ino for each in seen}
    for each in seen:
        each.close()
    assert len(seen) == 2
    assert found == {(stores[0].view(artifact) / "weights").stat().st_ino}


def test_a_view_is_waited_for_while_another_process_makes_it(tmp_path: Path, artifact: str) -> None:
    store = Store(tmp_path / "store")
    store.view(artifact)
    store.release_views()
    (lock,) = (store.root / "locks").glob("view-*")
    made = threading.Event()
    thread = threading.Thread(target=lambda: (store.view(artifact), made.set()))
    with HeldLock.awaited(lock):
        thread.start()
        assert not made.wait(0.3)
    thread.join()
    assert made.is_set()


def test_a_view_that_nobody_else_uses_is_handed_over(tmp_path: Path, artifact: str) -> None:
    store = Store(tmp_path / "store")
    file = store.view(artifact) / "weights"
    inode = file.stat().st_ino
    store.hand_over(artifact, tmp_path / "run" / "models")
    handed = tmp_path / "run" / "models" / "weights"
    assert handed.stat().st_ino == inode
    assert handed.read_bytes() == b"1" * 100
    (tmp_path / "ordinary").touch()
    assert handed.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
    assert not file.exists()
    store.hand_over(artifact, tmp_path / "again")  # its view is gone
    assert (tmp_path / "again" / "weights").read_bytes() == b"1" * 100
    assert store.view(artifact).is_dir()


def test_a_view_in_use_is_copied(tmp_path: Path, artifact: str) -> None:
    store, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    view = store.view(artifact)
    assert other.view(artifact) == view
    store.hand_over(artifact, tmp_path / "run")
    assert (tmp_path / "run" / "weights").read_bytes() == b"1" * 100
    assert (view / "weights").read_bytes() == b"1" * 100


def test_a_damaged_view_is_not_handed_over(tmp_path: Path, artifact: str) -> None:
    store = Store(tmp_path / "store")
    file = store.view(artifact) / "weights"
    file.chmod(0o644)
    file.write_bytes(b"2" * 100)
    store.hand_over(artifact, tmp_path / "run")
    assert (tmp_path / "run" / "weights").read_bytes() == b"1" * 100
