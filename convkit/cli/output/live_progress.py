"""Live progress: one updating line per stage on a terminal, plain lines elsewhere."""

import dataclasses
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from convkit.cli.output.run_time_left import RemainingWork, bar, overall
from convkit.cli.output.safe_text import Encodable, live_console
from convkit.host.processes.progress_events import StageEnd
from convkit.host.record.display_text import remaining_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.text import Text

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
_WORDS: dict[_State, str] = {
    "failed": "a check failed",
    "hit": "up to date",
    "waiting": "waiting",
    "running": "running",
}
# What is shown before the first stage is under way.
_PREPARE, _PREPARING = "prepare", "resolving tools and looking for finished stages"
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
    def work(self) -> RemainingWork:
        """The stage as a part of the whole."""
        ended = self.state not in ("waiting", "running")
        spent = 0.0 if self.state in ("waiting", "hit") else self.seconds
        if self.state == "running" and self.started is not None:
            spent = time.monotonic() - self.started
        kind = self.id.partition(":")[0].partition("/")[0]
        return RemainingWork(kind, self.state == "running", ended, spent, self.expected)


class LiveProgress:
    """Shows stages while they run. Thread-safe, because each stage reports from its own thread.

    On a terminal, one line per stage is redrawn in place. Elsewhere, a plain line is printed when a
    stage starts and when it ends, and if nothing does for long, what is being done. With `quiet`,
    nothing is printed. Writes to standard error, so that standard output contains only results.
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
        self._said, self._patience = time.monotonic(), _PATIENCE_SECONDS

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

            # Redirects other output above the live lines, so that it cannot garble them.
            self._live = Live(
                Encodable(_Lines(self._lines, self._lock)),
                console=self._console,
                refresh_per_second=8,
                redirect_stdout=False,
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
        """Stop the display; the last state stays on the screen."""
        with self._lock:
            self._prepared()
        if self._live is not None:
            self._live.stop()
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
        """Show what a running stage does, and the fraction done (0 to 1) if known."""
        with self._lock:
            line = self._lines.setdefault(stage, _Line(stage))
            line.message, line.share, line.moved = message, done, time.monotonic()

    def stage_finished(self, stage: str, status: StageEnd, seconds: float) -> None:
        """Mark a stage as ended or reused (`hit`); `seconds` is how long it ran."""
        with self._lock:
            self._prepared()
            line = self._lines.setdefault(stage, _Line(stage))
            line.state, line.seconds, line.message, line.share = status, seconds, "", None
            self._say(
                line,
                _WORDS.get(status, status)
                + ("" if status not in ("done", "failed") else f" in {seconds_text(seconds)}"),
            )

    def _prepared(self) -> None:
        """The first stage is under way, or there is none."""
        self._lines.pop(_PREPARE, None)

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
class _Lines:
    """The stages as rich draws them."""

    lines: dict[str, _Line]
    lock: threading.RLock

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        with self.lock:
            lines = list(self.lines.values())
            whole = _whole_text(lines, ascii_only=options.ascii_only)
            room = (options.height or console.height) - (1 if whole is None else 2)
            shown, hidden = _fitting(lines, room)
            width = min(max((len(line.id) for line in lines), default=0), options.max_width // 2)
            texts = [_line_text(line, width, ascii_only=options.ascii_only) for line in shown]
        if hidden:
            texts.append(Text(hidden, style="dim", no_wrap=True, overflow="ellipsis"))
        yield from texts
        if whole is not None:
            yield whole


def _whole_text(lines: list[_Line], *, ascii_only: bool) -> "Text | None":
    """Return the line about the whole run; None if nothing is planned, or all of it is done."""
    from rich.text import Text

    found = overall(line.work for line in lines if line.planned)
    if found.done == found.count:
        return None
    text = Text(no_wrap=True, overflow="crop" if ascii_only else "ellipsis")
    text.append(f"{found.done} of {found.count} stages", style="bold")
    if found.share is not None and found.left is not None:
        text.append(f"  {bar(found.share, ascii_only=ascii_only)}", style="cyan")
        late = found.left <= 0
        text.append("  longer than expected" if late else f"  {remaining_text(found.left)}")
    return text


def _fitting(lines: list[_Line], height: int) -> tuple[list[_Line], str]:
    """Return the lines that fit the screen, running and broken stages first."""
    if len(lines) <= height:
        return lines, ""
    urgency: dict[_State, int] = {
        "running": 0,
        "broken": 1,
        "failed": 1,
        "skipped": 2,
        "blocked": 3,
        "waiting": 4,
    }
    ranked = sorted(lines, key=lambda line: urgency.get(line.state, 5))[: max(height - 1, 1)]
    kept = {line.id for line in ranked}
    others = [line for line in lines if line.id not in kept]
    counts: dict[str, int] = {}
    for line in others:
        word = _WORDS.get(line.state, line.state)
        counts[word] = counts.get(word, 0) + 1
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    return [line for line in lines if line.id in kept], f"and {len(others)} more: {words}"


def _line_text(line: _Line, width: int, *, ascii_only: bool) -> "Text":
    from rich.text import Text

    style = _STYLES[line.state]
    seconds = (
        time.monotonic() - line.started
        if line.state == "running" and line.started is not None
        else line.seconds
    )
    clock = "" if line.state in ("waiting", "blocked", "hit") else seconds_text(seconds)
    parts = [_WORDS.get(line.state, line.state)] if line.state != "running" else []
    if line.share is not None:
        parts.append(f"{line.share * 100:.0f} %")
    if line.message:
        parts.append(" ".join(line.message.split()))
    mark = (_ASCII_MARKS if ascii_only else _MARKS)[line.state]
    name = line.id if len(line.id) <= width else line.id[: max(width - 2, 1)] + ".."
    return Text.assemble(
        (f"{mark} ", style),
        (name.ljust(width), "" if line.state != "waiting" else "dim"),
        (f" {clock:>12}  ", "dim"),
        ("  ".join(parts), style if line.state != "running" else ""),
        no_wrap=True,
        overflow="crop" if ascii_only else "ellipsis",
    )
