"""What a run tells whoever watches it."""

from typing import Protocol

from convkit.record.model import StageStatus


class Listener(Protocol):
    """Told of every stage as it goes; called from several threads."""

    def stage_waiting(self, stage: str) -> None:
        """A stage is part of the plan."""

    def stage_started(self, stage: str, reason: str) -> None:
        """A stage starts to run, and why it must."""

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """What a stage does now, and the share that is done where it is known."""

    def stage_finished(self, stage: str, status: StageStatus, seconds: float) -> None:
        """A stage has ended; `seconds` of work (0 for a hit)."""


class Silence:
    """A listener that says nothing."""

    def stage_waiting(self, stage: str) -> None:
        """Say nothing."""

    def stage_started(self, stage: str, reason: str) -> None:
        """Say nothing."""

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """Say nothing."""

    def stage_finished(self, stage: str, status: StageStatus, seconds: float) -> None:
        """Say nothing."""
