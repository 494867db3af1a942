"""Views are read while others ask for the same one."""

import contextlib
import os
import threading
from pathlib import Path
from typing import BinaryIO

import pytest

from convkit.store.locks import HeldLock
from convkit.store.store import Store


@pytest.fixture
def artifact(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "weights").write_bytes(b"1" * 100)
    return Store(tmp_path / "store").take_in(tmp_path / "in")


def test_a_view_that_is_read_is_not_replaced_by_another_that_is_made(
    tmp_path: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that start at once read the same artifact: in one run, and on a fleet's worker."""
    both, read_by_one, copy_into = threading.Barrier(2), threading.Event(), Store.copy_into

    def at_the_worst_moment(store: Store, artifact: str, folder: Path) -> tuple[str, ...]:
        turn = 1
        with contextlib.suppress(threading.BrokenBarrierError):  # one alone, as it should be
            turn = both.wait(0.5)
        if turn == 0:
            read_by_one.wait(0.5)
        return copy_into(store, artifact, folder)

    monkeypatch.setattr(Store, "copy_into", at_the_worst_moment)
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
