"""What Core AI's runtime does to its process does not reach this one."""

import os

import pytest

from convkit.runtimes.coreai.execution.executor import CrashedError, Executor
from convkit.worker.runtime_interface.sessions import RunFailedError


def stops() -> None:
    """Write what Swift writes before it traps, and end like it."""
    os.write(1, b"Runtime/Sizes.swift:59: Fatal error: Cannot broadcast\n")
    os.abort()


def test_a_crash_is_an_error_and_the_next_call_works() -> None:
    executor = Executor()
    assert executor.call(os.getpid) != os.getpid()
    with pytest.raises(CrashedError, match=r"crashed \(SIGABRT\): Runtime/Sizes.swift:59: Fatal"):
        executor.call(stops)
    assert executor.call(divmod, 7, 2) == (3, 1)
    assert executor.starts == 2
    with pytest.raises(RunFailedError, match="division"):
        executor.call(divmod, 7, 0)
    assert executor.starts == 2
