"""What a search is doing, and about how long it still takes."""

import threading
import time

from convkit.host.processes.progress_events import Listener, StageEnd
from convkit.host.record.display_text import remaining_text

# Until it is known: the candidates that a screening keeps, and what is tried further of each.
_KEPT, _FURTHER, _THREADS = 3, 4, 2


class Pace:
    """Reports progress to a listener, and is one itself for the search's runs.

    Times left are upper bounds at the pace so far; before anything was verified they are unknown.
    """

    def __init__(self, listener: Listener, group: int, screening: float, final: float) -> None:
        """`screening` and `final` are the seconds of measurement of one benchmark of `group`
        models.
        """
        self._lock = threading.Lock()
        self._listener = listener
        self._group = group
        self._final = final
        self._verified = self._verify_seconds = 0.0
        self._sessions = 0
        self._session_seconds = 0.0
        self._expected_session = screening
        self._waiting = 0  # verifications of this round that have not ended
        self._timings = 0  # benchmarks of this round that have not ended
        self._later = (0, 0, 0)  # verifications, screenings, final benchmarks of later rounds
        self._round = self._doing = ""
        self._round_started = self._last_end = time.monotonic()

    def verifying(self, count: int, what: str, *, later: tuple[int, int, int]) -> None:
        """Start a round of verifications; `later` are the verifications, screenings and final
        benchmarks that follow it.
        """
        self._waiting, self._timings, self._later = count, 0, later
        self._start(what, f"verifying {_candidates(count)}")

    def timing(self, count: int, what: str, *, later: tuple[int, int, int]) -> None:
        """Start a round of benchmarks of `count` candidates."""
        self._waiting, self._timings, self._later = 0, -(-count // self._group), later
        self._start(what, f"timing {_candidates(count)}")

    def ended(self) -> None:
        """A round has ended."""
        seconds = time.monotonic() - self._round_started
        self._listener.stage_finished(self._round, "done", seconds)

    def timed(self) -> None:
        """One benchmark of a round has ended."""
        now = time.monotonic()
        self._timings -= 1
        self._sessions += 1
        self._session_seconds += now - self._last_end
        self._last_end = now
        self._say()

    def stage_waiting(self, stage: str, expected: float | None = None) -> None:
        """Forward it."""
        self._listener.stage_waiting(stage, expected)

    def stage_started(self, stage: str, reason: str) -> None:
        """Forward it."""
        self._listener.stage_started(stage, reason)

    def stage_progress(self, stage: str, message: str, done: float | None = None) -> None:
        """Forward it."""
        self._listener.stage_progress(stage, message, done)

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        """Forward it, and count verifications."""
        self._listener.stage_finished(stage, status, seconds)
        with self._lock:  # stages end in threads of their own
            if not stage.startswith("verify:") or not self._waiting:
                return
            self._waiting -= 1
            if status != "hit":
                self._verified += 1
                now = time.monotonic()
                self._verify_seconds += now - self._last_end
                self._last_end = now
            self._say()

    @property
    def left(self) -> float | None:
        """The seconds that are left, at most; None if that is unknown."""
        verifications = self._waiting + self._later[0]
        if verifications and not self._verified:
            return None
        each = self._verify_seconds / self._verified if self._verified else 0.0
        session = (
            self._session_seconds / self._sessions if self._sessions else self._expected_session
        )
        overhead = max(session - self._expected_session, 0.0)
        sessions = (self._timings + self._later[1]) * session
        return verifications * each + sessions + self._later[2] * (self._final + overhead)

    def _start(self, what: str, doing: str) -> None:
        self._round, self._doing = f"tune {what}", doing
        self._round_started = self._last_end = time.monotonic()
        left = self._left_text()
        self._listener.stage_started(self._round, f"{doing}, {left}" if left else doing)
        self._say()

    def _say(self) -> None:
        left = self._left_text()  # first: a narrow terminal shows the beginning
        shown = f"{left}: {self._doing}" if left else self._doing
        self._listener.stage_progress(self._round, shown, None)

    def _left_text(self) -> str:
        left = self.left
        return "" if left is None else f"at most {remaining_text(left)}"


def _candidates(count: int) -> str:
    return f"{count} candidate{'s' if count != 1 else ''}"


def further(kept: int | None, group: int) -> tuple[int, int, int]:
    """Return the verifications, screenings and final benchmarks that follow a screening which
    keeps so many candidates (None: that is not known yet).
    """
    kept = _KEPT if kept is None else kept
    refined = kept * _FURTHER
    screenings = -(-refined // group) + -(-kept * _THREADS // group)
    return refined, screenings, -(-kept // group)
