"""What Core AI's runtime does to its process does not reach this one."""

import os
import sys
from pathlib import Path

import pytest

from convkit.runtimes.coreai.execution.executor import CrashedError, Executor
from convkit.worker.runtime_interface.sessions import RunFailedError


def stops() -> None:
    """Write what Swift writes before it traps, and end like it."""
    os.write(1, b"Runtime/Sizes.swift:59: Fatal error: Cannot broadcast\n")
    os.abort()


def test_a_crash_is_an_error_and_the_next_call_works() -> None:
    executor = Executor()
    assert not executor.holds(0)
    assert executor.call(os.getpid) != os.getpid()
    assert executor.holds(1)
    with pytest.raises(CrashedError, match=r"crashed \(SIGABRT\): Runtime/Sizes.swift:59: Fatal"):
        executor.call(stops)
    # What the process had loaded is gone with it, before the next one starts.
    assert not executor.holds(1)
    assert executor.call(divmod, 7, 2) == (3, 1)
    assert executor.holds(2)
    assert executor.starts == 2
    with pytest.raises(RunFailedError, match="division"):
        executor.call(divmod, 7, 0)
    assert executor.starts == 2


def test_it_starts_in_a_worker_whose_paths_do_not_have_convkit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = [path for path in sys.path if not Path(path, "convkit").is_dir()]
    monkeypatch.setattr(sys, "path", without)
    assert Executor().call(divmod, 7, 2) == (3, 1)


def leaves() -> None:
    """End as Python does for an error outside a call."""
    os.write(2, b"Traceback (most recent call last):\nModuleNotFoundError: no such module\n")
    os._exit(1)


@pytest.mark.thorough
def test_an_exit_is_told_with_pythons_last_words() -> None:
    with pytest.raises(CrashedError, match=r"\(exit code 1\): ModuleNotFoundError: no such mod"):
        Executor().call(leaves)
