"""Says what a command does while it shows nothing else: nothing stays silent for long."""

import contextlib
import threading
import time
from collections.abc import Iterator

from convkit.cli.plain import live_console

# Python and the command line take up to half a second to start: together, a second.
PATIENCE_SECONDS = 0.5


@contextlib.contextmanager
def waiting(doing: str, *, quiet: bool = False) -> Iterator[None]:
    """Say what is done on standard error if it takes more than half a second: with a clock on a
    terminal, as one line elsewhere. `quiet`: never.
    """
    if quiet:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(doing, ended), name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(doing: str, ended: threading.Event) -> None:
    if ended.wait(PATIENCE_SECONDS):
        return
    console = live_console()
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(f"{doing} ...", highlight=False, markup=False)
        return
    started = time.monotonic() - PATIENCE_SECONDS
    with console.status(doing, spinner="line") as status:
        while not ended.wait(0.5):
            status.update(f"{doing}, {time.monotonic() - started:.0f} s")
