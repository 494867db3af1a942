"""Says what a command does while it shows nothing else: nothing stays silent for long."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import live_console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Python and the command line take up to half a second to start: together, a second.
PATIENCE_SECONDS = 0.5
# Without a terminal: after how long what is done is said again, at first and at most.
REPEAT_SECONDS, _MOST_SECONDS = 2.0, 60.0
# What goes before the details of a step, such as the sizes that are tried.
_STEP = re.compile(r"[^,:(]*")


@contextlib.contextmanager
def waiting(doing: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show on standard error what is being done if it lasts more than half a second: with a clock
    on a terminal; elsewhere as one line, repeated ever less often. `quiet`: never.

    Yields a function that shows the next step: on a terminal in place of the text, elsewhere as its
    own line, unless only its details are new: `trying sizes, run 4`.
    """
    if quiet:
        yield lambda _: None
        return
    shown = _Shown(doing, live_console())
    thread = threading.Thread(target=shown.show, name="waiting", daemon=True)
    thread.start()
    try:
        yield shown.next
    finally:
        shown.ended.set()
        thread.join()


class _Shown:
    """What is being done, on a console."""

    def __init__(self, doing: str, console: "Console") -> None:
        self.ended = threading.Event()
        self._doing = doing
        self._steps: set[str] = set()
        self._console = console
        self._is_live = console.is_terminal and not console.is_dumb_terminal

    def next(self, doing: str) -> None:
        self._doing = doing
        step = _STEP.match(doing)
        if not self._is_live and step is not None and step[0] not in self._steps:
            self._steps.add(step[0])
            self._console.print(doing, highlight=False, markup=False)

    def show(self) -> None:
        first = self._doing
        if self.ended.wait(PATIENCE_SECONDS):
            return
        if not self._is_live:
            if self._doing == first:  # what comes next has been said already
                self._console.print(f"{first} ...", highlight=False, markup=False)
            self._repeat(PATIENCE_SECONDS)
            return
        started = time.monotonic() - PATIENCE_SECONDS
        with self._console.status(self._text(started), spinner="line") as status:
            while not self.ended.wait(0.5):
                status.update(self._text(started))

    def _repeat(self, spent: float) -> None:
        """Say again what is done after two seconds, then four, and so on: a dozen lines in ten
        minutes, whatever happens meanwhile.
        """
        wait = REPEAT_SECONDS
        while not self.ended.wait(wait):
            spent += wait
            self._console.print(f"{self._doing} ({spent:.0f} s)", highlight=False, markup=False)
            wait = min(wait * 2, _MOST_SECONDS)

    def _text(self, started: float) -> "Text":
        from rich.text import Text

        return Text(f"{self._doing}, {time.monotonic() - started:.0f} s")
