"""What a run does after its stages is shown if it takes long."""

import threading

import pytest

from convkit.host.run import run_command


class Seen:
    """A listener that keeps what starts and ends."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.started = threading.Event()

    def stage_waiting(self, stage: str, expected: float | None = None) -> None:
        """Ignore it."""

    def stage_started(self, stage: str, reason: str) -> None:
        """Keep it."""
        self.events.append((stage, reason))
        self.started.set()

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """Ignore it."""

    def stage_finished(self, stage: str, status: str, seconds: float) -> None:
        """Keep it."""
        self.events.append((stage, status))


def test_it_is_announced_and_ended_if_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "_PATIENCE_SECONDS", 0.01)
    seen = Seen()
    with run_command._announced("mlflow", "logging the run", seen):
        assert seen.started.wait(5.0)
    assert seen.events == [("mlflow", "logging the run"), ("mlflow", "done")]


def test_it_is_ended_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_command, "_PATIENCE_SECONDS", 0.01)
    seen = Seen()

    def fails() -> None:
        with run_command._announced("mlflow", "logging the run", seen):
            assert seen.started.wait(5.0)
            raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="full"):
        fails()
    assert seen.events[-1] == ("mlflow", "done")


def test_nothing_is_said_about_a_moment() -> None:
    seen = Seen()
    with run_command._announced("mlflow", "logging the run", seen):
        pass
    assert not seen.events
