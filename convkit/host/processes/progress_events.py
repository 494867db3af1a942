"""Progress events of a run."""

from typing import Literal, Protocol

from convkit.host.record.run_record import StageStatus

# failed: the stage did its work, and one of its checks found an error.
StageEnd = StageStatus | Literal["failed"]


class Listener(Protocol):
    """Receives the progress of all stages; called from several threads."""

    def stage_waiting(self, stage: str, expected: float | None = None) -> None:
        """A stage is part of the plan; `expected` is how many seconds it took when it last ran."""

    def stage_started(self, stage: str, reason: str) -> None:
        """A stage starts; `reason` explains why it must run."""

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """What a stage is doing, and the fraction done if known."""

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        """A stage has ended; `seconds` is the duration of its work (0 for a hit)."""


class SilentListener:
    """A listener that ignores everything."""

    def stage_waiting(self, stage: str, expected: float | None = None) -> None:
        """Do nothing."""

    def stage_started(self, stage: str, reason: str) -> None:
        """Do nothing."""

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        """Do nothing."""

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        """Do nothing."""
