"""Fixtures that hold for all tests."""

import contextlib
import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

# Several test files run at once, and each of a stage's threads would wait in a loop for the others
# to get a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As convkit's workers do: with torch and the converters imported, a full collection takes half a
# second.
gc.set_threshold(10_000, 10, 10)
# Helpers that several test modules share lie beside this file and in the tests' folders.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell pytest-xdist (`--dist loadgroup`) what belongs to one of its workers, the longest first.

    The tests of a file share fixtures, so they stay together; but a test marked `by_itself` goes
    to whichever worker is free. The files with slow tests begin, these single ones fill what is
    left, and the quick files come last.
    """
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))

    def turn(item: pytest.Item) -> tuple[int, int]:
        if item.get_closest_marker("by_itself"):
            return 1, 0
        return (0, -slow[item.path]) if slow[item.path] else (2, 0)

    items.sort(key=turn)  # stable: a file's tests stay in order
    for item in items:
        if not item.get_closest_marker("by_itself"):
            group = f"{item.path.parent.name}/{item.path.stem}"
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the real runs, the real MLflow and the model hub."""
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "convkit-home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Fork the workers of the host toolchain: over a thousand of them would import torch anew.

    Isolated toolchains keep their fresh processes, and so do the tests of these themselves.
    """
    from convkit.execute.fork_servers import ForkServers
    from convkit.execute.workers import WORKERS

    with contextlib.closing(ForkServers()) as servers, pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "host", servers)
        yield
