"""What the host asks of a resident: a fork server that outlives the run that started it."""

import dataclasses
from typing import Literal

# Instead of `READY`: a file that the resident has imported has changed, and it ends.
STALE = b"stale"


@dataclasses.dataclass(frozen=True)
class ResidentOrder:
    """One connection's only order.

    `serve`: fork a server for a run, with the `umask` and `limits` (soft and hard, by resource
    number) of the requesting process; the connection is that server's orders from now on. `show`:
    say what the resident is (`ResidentState`). `stop`: end.
    """

    what: Literal["serve", "show", "stop"]
    umask: int = 0
    limits: tuple[tuple[int, int, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class ResidentState:
    """A resident: its process, interpreter and tools, since when it runs (seconds since 1970), how
    many seconds it has served nobody, and how many runs it serves.
    """

    pid: int
    python: str
    tools: tuple[str, ...]
    started: float
    idle_seconds: float
    runs: int
