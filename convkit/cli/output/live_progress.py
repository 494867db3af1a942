"""Live progress: a line for each stage that has ended, and one that moves on a terminal."""

import dataclasses
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from convkit.cli.output.run_time_left import Overall, RemainingWork, overall
from convkit.cli.output.safe_text import Encodable, live_console
from convkit.host.processes.progress_events import StageEnd
from convkit.host.record.display_text import remaining_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

_State = Literal["waiting", "running"] | StageEnd

_STYLES: dict[_State, str] = {
    "waiting": "dim",
    "running": "bold cyan",
    "hit": "green",
    "done": "green",
    "failed": "bold red",
    "broken": "bold red",
    "skipped": "bold yellow",
    "blocked": "yellow",
}
_MARKS: dict[_State, str] = {
    "waiting": "\N{MIDDLE DOT}",
    "running": "\N{BLACK RIGHT-POINTING SMALL TRIANGLE}",
    "hit": "\N{CHECK MARK}",
    "done": "\N{CHECK MARK}",
    "failed": "\N{BALLOT X}",
    "broken": "\N{BALLOT X}",
    "skipped": "\N{EN DASH}",
    "blocked": "\N{EN DASH}",
}
_ASCII_MARKS: dict[_State, str] = {
    "waiting": ".",
    "running": ">",
    "hit": "+",
    "done": "+",
    "failed": "x",
    "broken": "x",
    "skipped": "-",
    "blocked": "-",
}
_WORDS: dict[_State, str] = {"failed": "a check failed", "hit": "up to date"}
# What a stage of a kind has done once it ends well.
_DONE = {
    "export": "exported",
    "reference": "original run",
    "precision": "precision planned",
    "build": "built",
    "verify": "compared with the original",
    "mlflow": "logged",
}
# What is shown before the first stage is under way.
_PREPARE, _PREPARING = "prepare", "resolving tools and looking for finished stages"
# What is shown once stages have failed and ended.
_CAUSES = "causes"
# Without a terminal: seconds without a new line after which one says what is being done. Each time
# nothing has started or ended since, it is twice as long, so that logs stay short.
_PATIENCE_SECONDS, _MOST_PATIENCE_SECONDS = 1.5, 20.0
_BEAT_SECONDS = 0.25


@dataclasses.dataclass
class _Line:
    """The state of one stage. `started` is in seconds on the monotonic clock. `planned` stages are
    those that a run announced: they count towards the whole, with what is `expected` of them.
    """

    id: str
    state: _State = "waiting"
    message: str = ""
    share: float | None = None
    started: float | None = None
    seconds: float = 0.0
    planned: bool = False
    expected: float | None = None
    # When its message last changed.
    moved: float = 0.0

    @property
    def kind(self) -> str:
        """The kind of stage, the first part of its id."""
        return self.id.partition(":")[0].partition("/")[0]

    @property
    def word(self) -> str:
        """What came of a stage that has ended."""
        if self.state == "done":
            return _DONE.get(self.kind, "done")
        return _WORDS.get(self.state, self.state)

    @property
    def work(self) -> RemainingWork:
        """The stage as a part of the whole."""
        ended = self.state not in ("waiting", "running")
        spent = 0.0 if self.state in ("waiting", "hit") else self.seconds
        if self.state == "running" and self.started is not None:
            spent = time.monotonic() - self.started
        return RemainingWork(self.kind, self.state == "running", ended, spent, self.expected)


class LiveProgress:
    """Shows stages while they run. Thread-safe, because each stage reports from its own thread.

    On a terminal, a stage that ends leaves a line, and below these one line is redrawn in place:
    how much is done, for how long, what is left, and what is done now. Elsewhere, a plain line is
    printed when a stage starts and when it ends, and if nothing does for long, what is being done.
    With `quiet`, nothing is printed. Writes to standard error, so that standard output contains
    only results.
    """

    def __init__(self, *, console: "Console | None" = None, quiet: bool = False) -> None:
        """`console`: where to write (default: standard error)."""
        self._lock = threading.RLock()
        self._lines: dict[str, _Line] = {}
        self._quiet = quiet
        self._console = console
        self._live: Live | None = None
        self._ended = threading.Event()
        self._beating: threading.Thread | None = None
        self._began = self._said = time.monotonic()
        self._patience = _PATIENCE_SECONDS

    def __enter__(self) -> Self:
        """Start the display and hide the terminal's cursor."""
        if self._quiet:
            return self
        if self._console is None:
            self._console = live_console()
        self._lines[_PREPARE] = _Line(_PREPARE, "running", _PREPARING)
        self._lines[_PREPARE].started = self._said = time.monotonic()
        self._lines[_PREPARE].moved = self._said
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            from rich.live import Live

            # Redirects other output above the live line, so that it cannot garble it.
            self._live = Live(
                Encodable(_Moving(self._lines, self._lock, self._began)),
                console=self._console,
                refresh_per_second=8,
                redirect_stdout=False,
                transient=True,
            )
            self._live.start()
        else:
            self._beating = threading.Thread(target=self._beats, name="progress", daemon=True)
            self._beating.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the display; what the stages came to stays on the screen."""
        with self._lock:
            self._prepared()
        if self._live is not None:
            self._live.stop()
            self._sum_up()
            self._live = None
        self._ended.set()
        if self._beating is not None:
            self._beating.join()

    def stage_waiting(self, stage: str, expected: float | None = None) -> None:
        """Add a stage that will run, or be reused, later."""
        with self._lock:
            line = self._lines.setdefault(stage, _Line(stage))
            line.planned = True
            line.expected = line.expected if expected is None else expected

    def stage_started(self, stage: str, reason: str) -> None:
        """Mark a stage as running; `reason` explains why it must run."""
        with self._lock:
            self._prepared()
            line = self._lines.setdefault(stage, _Line(stage))
            line.state, line.message, line.started = "running", reason, time.monotonic()
            self._say(line, f"started: {reason}" if reason else "started")

    def stage_progress(self, stage: str, message: str, done: float | None = None) -> None:
        """Show what a running stage does, and the fraction done (0 to 1) if known. What is done
        about a stage that has ended has a line of its own.
        """
        with self._lock:
            line = self._lines.setdefault(stage, _Line(stage))
            if line.work.ended:
                line = self._lines.setdefault(_CAUSES, _Line(_CAUSES))
                if line.state != "running":
                    line.state, line.started = "running", time.monotonic()
                message = f"{stage}: {message}"
            line.message, line.share, line.moved = message, done, time.monotonic()

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        """Mark a stage as ended or reused (`hit`); `seconds` is how long it ran."""
        with self._lock:
            self._prepared()
            line = self._lines.setdefault(stage, _Line(stage))
            line.state, line.seconds, line.message, line.share = status, seconds, "", None
            if self._live is None:
                spent = f" in {seconds_text(seconds)}" if status in ("done", "failed") else ""
                self._say(line, f"{line.word}{spent}{self._left()}")
            elif status != "hit":
                width = min(
                    max(len(each.id) for each in self._lines.values()),
                    self._live.console.width // 2,
                )
                self._live.console.print(Encodable(_Ended(line, width)))

    def _left(self) -> str:
        """Return how much of the run is done, and what is left, as the end of a plain line."""
        found = overall(each.work for each in self._lines.values() if each.planned)
        if found.done in (0, found.count):
            return ""
        left = f", {_left_text(found)}" if found.left is not None else ""
        return f" ({found.done} of {found.count} stages{left})"

    def _sum_up(self) -> None:
        """Say how many stages a run had, and for how long, unless nothing had to run."""
        planned = [line for line in self._lines.values() if line.planned]
        hits = sum(line.state == "hit" for line in planned)
        if self._console is None or len(planned) == hits:
            return
        from rich.text import Text

        reused = f", {hits} of them up to date" if hits else ""
        ended = sum(line.work.ended for line in planned)
        of_all = "" if ended == len(planned) else f"{ended} of "
        count = f"{of_all}{len(planned)} stages"
        spent = seconds_text(time.monotonic() - self._began)
        self._console.print(Encodable(Text(f"{count} in {spent}{reused}", style="dim")))

    def _prepared(self) -> None:
        """The first stage is under way, or there is none; causes are being looked for no more."""
        self._lines.pop(_PREPARE, None)
        self._lines.pop(_CAUSES, None)

    def _beats(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            self.beat()

    def beat(self) -> None:
        """Without a terminal: say what the stage that moved last is doing, if nothing was said for
        long.
        """
        with self._lock:
            running = [line for line in self._lines.values() if line.state == "running"]
            now = time.monotonic()
            if not running or now - self._said < self._patience:
                return
            line = max(running, key=lambda each: each.moved)
            # Before its first message, a stage has only the reason why it runs.
            doing = " ".join(line.message.split()) if line.moved else "starting"
            more = f"; {len(running) - 1} more running" if len(running) > 1 else ""
            patience = min(self._patience * 2, _MOST_PATIENCE_SECONDS)
            self._say(line, f"{doing} ({now - (line.started or now):.0f} s{more})")
            self._patience = patience

    def _say(self, line: _Line, text: str) -> None:
        self._said, self._patience = time.monotonic(), _PATIENCE_SECONDS
        if self._live is None and not self._quiet and self._console is not None:
            # soft_wrap: log viewers wrap lines themselves; no markup or highlighting: names are
            # data.
            from rich.text import Text

            self._console.print(Encodable(Text(f"{line.id}: {text}")), soft_wrap=True)


@dataclasses.dataclass(frozen=True)
class _Ended:
    """The line of a stage that has ended, with its id padded to a width."""

    line: _Line
    width: int

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        del console
        line, style = self.line, _STYLES[self.line.state]
        mark = (_ASCII_MARKS if options.ascii_only else _MARKS)[line.state]
        name = line.id if len(line.id) <= self.width else line.id[: max(self.width - 2, 1)] + ".."
        clock = "" if line.state == "blocked" else seconds_text(line.seconds)
        yield Text.assemble(
            (f"{mark} ", style),
            name.ljust(self.width),
            (f" {clock:>12}  ", "dim"),
            (line.word, style),
            no_wrap=True,
            overflow="crop" if options.ascii_only else "ellipsis",
        )


@dataclasses.dataclass(frozen=True)
class _Moving:
    """What is under way, in one line: how much of the run is done, for how long it has run, what is
    left, and what is done now.
    """

    lines: dict[str, _Line]
    lock: threading.RLock
    began: float

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        del console
        with self.lock:
            lines = list(self.lines.values())
            running = [line for line in lines if line.state == "running"]
            if not running:
                return
            parts = [*self._whole(lines), (_doing(running), "")]
        mark = (_ASCII_MARKS if options.ascii_only else _MARKS)["running"]
        overflow: Literal["crop", "ellipsis"] = "crop" if options.ascii_only else "ellipsis"
        yield Text.assemble((f"{mark} ", "bold cyan"), *parts, no_wrap=True, overflow=overflow)

    def _whole(self, lines: list[_Line]) -> list[tuple[str, str]]:
        """Return what is done of what is planned, and what is left, with styles."""
        found = overall(line.work for line in lines if line.planned)
        if found.done == found.count:
            return []
        left = [(f", {_left_text(found)}", "cyan")] if found.left is not None else []
        spent = _clock(time.monotonic() - self.began)
        count = f"{found.done} of {found.count} stages"
        return [(count, "bold"), (f", {spent}", ""), *left, (" | ", "dim")]


def _doing(running: list[_Line]) -> str:
    """Return what the stage that moved last is doing, for how long, and how many others run."""
    line = max(running, key=lambda each: each.moved)
    message = " ".join(line.message.split())
    parts = [message] if line.id == _PREPARE else [f"{line.id}: {message}" if message else line.id]
    if line.share is not None:
        parts.append(f"{line.share * 100:.0f} %")
    now = time.monotonic()
    parts.append(_clock(now - (line.started or now)))
    more = f" (and {len(running) - 1} more)" if len(running) > 1 else ""
    return ", ".join(parts) + more


def _left_text(found: Overall) -> str:
    assert found.left is not None
    return "longer than expected" if found.left <= 0 else remaining_text(found.left)


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 59.5 else seconds_text(seconds)
