"""What uv downloads, by the lines it prints: how much is there, and how long the rest takes.

uv prints `Downloading torch (180.0MiB)` for each large file when it starts, and ` Downloaded torch`
when that is there.
"""

import re
import time
from collections.abc import Callable

_STARTED = re.compile(r"Downloading (\S+) \(([\d.]+)(B|KiB|MiB|GiB)\)")
_ENDED = re.compile(r"\s*Downloaded (\S+)")
_PREPARED = re.compile(r"Prepared (\d+ packages?)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Downloads:
    """Follows one call of uv. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = 0.0
        self._sizes: dict[str, int] = {}
        self._there: set[str] = set()

    def heard(self, line: str) -> str | None:
        """Return what to show after one of uv's lines; None if it changes nothing."""
        if started := _STARTED.match(line):
            if not self._sizes:
                self._began = self._clock()
            self._sizes[started[1]] = round(float(started[2]) * _UNITS[started[3]])
        elif ended := _ENDED.match(line):
            self._there.add(ended[1])
        elif prepared := _PREPARED.match(line):
            return f"installing {prepared[1]}"
        else:
            return None
        return self._text()

    def _text(self) -> str:
        total = sum(self._sizes.values())
        there = sum(size for name, size in self._sizes.items() if name in self._there)
        missing = [name for name in self._sizes if name not in self._there]
        text = f"downloading {_megabytes(total)}, {_megabytes(there)} done"
        if there and there < total:
            left = (self._clock() - self._began) / there * (total - there)
            text += f", about {left:.0f} s left"
        return f"{text}: {', '.join(missing[:3])}" if missing else text


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.0f} MB"
