"""What the host orders of a fork server."""

import dataclasses

from convkit.protocol.json_codec import Json
from convkit.protocol.process_trees import STAGE_VARIABLE

READY = b"ready"
# The order after the last one: fork nothing more, and free what was imported and loaded.
REST = b"rest"
THREADS = "OMP_NUM_THREADS"
# Variables that each worker has for itself: those that only the Pythons that it starts read, the
# number of threads, and its name.
PER_WORKER = ("PYTHONPYCACHEPREFIX", THREADS, STAGE_VARIABLE)


@dataclasses.dataclass(frozen=True)
class ForkOrder:
    """One worker to fork. It starts in `folder`, with its own values of the variables `PER_WORKER`,
    and with the `umask` and `limits` (soft and hard, by resource number) of the requesting process.
    """

    request: str
    result: str
    folder: str
    environment: dict[str, str]
    umask: int
    limits: tuple[tuple[int, int, int], ...]


@dataclasses.dataclass(frozen=True)
class LoadOrder:
    """One loader to fork: `function` (`module:name`) is called with `argument`, and what it leaves
    in the process is there in all workers. It runs in `folder`, with `umask` and `limits` as above.
    """

    function: str
    argument: Json
    folder: str
    umask: int
    limits: tuple[tuple[int, int, int], ...]
