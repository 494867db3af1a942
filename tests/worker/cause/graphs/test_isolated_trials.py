"""A trial that ends the process costs that trial, not the search."""

import os
import signal
import subprocess
import threading
import time

import pytest

from convkit.worker.cause.graphs import isolated_trials
from convkit.worker.cause.graphs.isolated_trials import Report, TaskFailedError, spent, survived


def test_a_task_s_answer_is_returned() -> None:
    assert survived(lambda report, deadly: {"answer": [1, 2]}) == {"answer": [1, 2]}  # noqa: ARG005


def test_a_trial_that_ends_the_process_is_left_out_the_next_time() -> None:
    def task(report: Report, deadly: frozenset[int]) -> list[int]:
        tried = []
        for number in range(6):
            if number in deadly:
                continue
            report(number)
            if number in (1, 4):
                os.kill(os.getpid(), signal.SIGFPE)
            tried.append(number)
        return tried

    assert survived(task) == [0, 2, 3, 5]


def test_a_task_that_ends_without_a_trial_is_given_up() -> None:
    assert survived(lambda report, deadly: os._exit(1)) is None  # noqa: ARG005


def test_a_trial_that_waits_for_ever_is_left_out_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated_trials, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(isolated_trials, "_STUCK_SECONDS", 0.5)
    held = threading.Lock()

    def task(report: Report, deadly: frozenset[int]) -> list[int]:
        tried = []
        for number in range(4):
            if number not in deadly:
                report(number)
                if number == 1:
                    held.acquire()
                if number == 2:  # works for longer than a stuck process may rest
                    end = time.process_time() + 1
                    while time.process_time() < end:
                        pass
                tried.append(number)
        return tried

    with held:  # by this process, and so never released in the child
        assert survived(task) == [0, 2, 3]


def test_a_trial_that_needs_too_much_memory_is_left_out_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolated_trials, "available_memory", lambda: 1 << 30)

    def task(report: Report, deadly: frozenset[int]) -> list[int]:
        tried = []
        for number, megabytes in enumerate((16, 2048, 64)):
            if number not in deadly:
                report(number)
                tried.append(len(bytes(megabytes << 20)) >> 20)
        return tried

    assert survived(task) == [16, 64]


def test_a_task_may_wait_for_children_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_trials, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(isolated_trials, "_STUCK_SECONDS", 0.3)

    def task(report: Report, deadly: frozenset[int]) -> int:
        return subprocess.run(["sleep", "1"], check=False).returncode

    assert survived(task) == 0


def test_an_exception_is_raised_with_its_traceback() -> None:
    def task(report: Report, deadly: frozenset[int]) -> int:
        raise ValueError("a candidate cannot be built")

    with pytest.raises(TaskFailedError, match="ValueError: a candidate cannot be built"):
        survived(task)


def test_time_that_a_task_spends_is_counted() -> None:
    before = spent()
    survived(lambda report, deadly: sum(range(3_000_000)))  # noqa: ARG005
    assert spent() > before


def test_a_task_that_is_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_trials, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(isolated_trials, "_GRACE_SECONDS", 0.1)
    began = time.monotonic()

    def task(report: Report, deadly: frozenset[int]) -> None:
        while True:  # on the processor, and so not stuck
            report(len(deadly))

    assert survived(task, began + 0.3) is None
    assert 0.3 < time.monotonic() - began < 10


def test_time_that_passes_is_counted_too() -> None:
    before, began = spent(), time.monotonic()
    time.sleep(0.4)
    passed = time.monotonic() - began
    assert spent() - before >= passed / isolated_trials.PATIENCE
