"""A worker's end of a benchmark session: answers the host's orders for timings."""

import contextlib
import gc
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import Hello, Timing, TimingOrder
from convkit.worker.bench.processor_waits import Waiting
from convkit.worker.cases.case import Feeds
from convkit.worker.job_context import StageFailedError
from convkit.worker.runtime_interface.sessions import RunFailedError


def answer_orders(
    address: str, run: Callable[[Feeds], object], feeds: Mapping[str, Feeds], load_seconds: float
) -> None:
    """Make the first call, say hello to the host, and time calls until it ends the session.

    `feeds` are the inputs by the name of their size, the first of which is called first. Raises
    StageFailedError if the model cannot run on that, or if the host is gone.
    """
    first = timed_calls(run, next(iter(feeds.values())), 1)
    if first.error is not None:
        raise StageFailedError(f"the first call failed: {first.error}")
    with connected(address) as stream:
        _send(stream, Hello(load_seconds, first.seconds[0]))
        for line in stream:
            order = decode(TimingOrder, json.loads(line))
            if order.size is None:
                return
            _send(stream, _turn(run, feeds[order.size], order.calls))
    raise StageFailedError("the benchmark ended: convkit itself is gone")


def _turn(run: Callable[[Feeds], object], feeds: Feeds, calls: int) -> Timing:
    """Time a model's turn, after one call that does not count: it wakes the threads, brings the
    weights back into the caches, and outlasts the threads of the model before, which still spin.
    In a turn of a single, slow call, none of this matters.
    """
    if calls > 1:
        timed_calls(run, feeds, 1)
    return timed_calls(run, feeds, calls)


def timed_calls(run: Callable[[Feeds], object], feeds: Feeds, calls: int) -> Timing:
    """Return the duration of each call. The garbage collector is off: it belongs to no call."""
    seconds = []
    gc.collect()
    gc.disable()
    waiting = Waiting()
    try:
        for _ in range(calls):
            started = time.perf_counter()
            run(feeds)
            seconds.append(time.perf_counter() - started)
    except RunFailedError as error:
        return Timing((), str(error))
    finally:
        gc.enable()
    return Timing(tuple(seconds), waited=waiting.share())


@contextlib.contextmanager
def connected(address: str) -> Iterator[IO[str]]:
    """Connect to the host's socket; raises StageFailedError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(address)
        except OSError as error:
            raise StageFailedError(f"the benchmark's socket does not answer: {error}") from error
        with connection.makefile("rw", encoding="utf-8") as stream:
            yield stream


def _send(stream: IO[str], message: Hello | Timing) -> None:
    stream.write(json.dumps(encode(message)) + "\n")
    stream.flush()
