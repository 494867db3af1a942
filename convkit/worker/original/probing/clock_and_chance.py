"""The clock and Python's random numbers, as a model's own code reads them while it runs: an export
keeps what its own moment had.

Two runs in a second see one date, and hardly ever a rare random number. So the calls are found by
watching one run, and the model runs again on another day, or with numbers at either end.
"""

import contextlib
import datetime as dt
import functools
import os
import random
import secrets
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.original.probing.values_read import outputs_of, part
from convkit.worker.original.source_lines import relative_source
from convkit.worker.process import observed_lookups
from convkit.worker.process.user_modules import is_tool_path

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

Inputs = Sequence[torch.Tensor]
# bits: whole numbers of which any may have a meaning, such as a UUID's.
Read = Literal["clock", "chance", "bits"]

_STOPWATCHES = ("perf_counter", "monotonic", "process_time", "thread_time")
_CLOCKS = ("time", "time_ns", "localtime", "gmtime", "ctime", "strftime", "asctime")
_DATES = ("now", "today", "utcnow")
# From now: first no multiple of a week, a month, a year, or a day, then each weekday, each month,
# every second hour, and years.
_LATER = (
    dt.timedelta(days=467, hours=7, minutes=23),
    *(dt.timedelta(days=day) for day in range(1, 7)),
    *(dt.timedelta(days=365 + 30 * month) for month in range(1, 13)),
    *(dt.timedelta(hours=hour) for hour in range(1, 24, 2)),
    *(dt.timedelta(days=365.25 * years) for years in (-20, 10, 50)),
)
# Between the model's code and what it calls.
_BETWEEN = (
    *(random.__file__, dt.__file__, uuid.__file__, secrets.__file__, observed_lookups.__file__),
)
_UNIFORM = (random.random, np.random.rand, np.random.random, np.random.random_sample)
_OF_NUMPY = (
    *_UNIFORM[1:],
    *(np.random.randn, np.random.normal, np.random.standard_normal, np.random.uniform),
    *(np.random.randint, np.random.choice, np.random.permutation),
)
# What a number between 0 and 1 may be.
_ENDS = (0.0, 1.0 - 2.0**-53)
# What other functions return at either end, given their arguments.
_AT_END: dict[Callable[..., Any], Callable[..., Any]] = {
    random.uniform: lambda end, a, b: a + (b - a) * end,
    random.randint: lambda end, a, b: b if end else a,
    random.randrange: lambda end, start, stop=None, step=1: (
        range(start)[-1 if end else 0]
        if stop is None
        else range(start, stop, step)[-1 if end else 0]
    ),
    random.choice: lambda end, seq: seq[-1 if end else 0],
    random.getrandbits: lambda end, k: 2**k - 1 if end else 0,
    # Only zeros: what draws again until a number is in range ends.
    os.urandom: lambda _end, size: bytes(size),
}


def read_finding(module: "ContractModule", inputs: Inputs, root: str | None) -> Finding | None:
    """Return N303 if the model's own code reads the clock, or draws Python's or numpy's random
    numbers, and returns something else for others; None otherwise.
    """
    _own_modules.cache_clear()
    reads = _watched(module, inputs, root)
    for line, what in reads.items():
        expected = outputs_of(module, inputs)
        if expected is None:
            return None
        for other in _others(what):
            with other:
                found = outputs_of(module, inputs)
            if found is not None and part(expected, found):
                return _finding(line, what)
        if what == "bits":
            return _unknown(line)
    return None


def _watched(module: "ContractModule", inputs: Inputs, root: str | None) -> dict[str, Read]:
    """Run a model; return the lines of its own code that read the clock or draw numbers."""
    found: dict[str, Read] = {}

    def note(caller: FrameType, what: Read) -> None:
        # What random.random's relatives are made of is called from their own file.
        while caller.f_code.co_filename in _BETWEEN and caller.f_back is not None:
            caller = caller.f_back
        if is_tool_path(caller.f_code.co_filename):
            return
        line = relative_source(caller.f_code.co_filename, caller.f_lineno, root)
        if line is not None:
            found.setdefault(line, what)

    def called(frame: FrameType, event: str, argument: object) -> None:
        what = _kind(argument) if event == "c_call" else None
        if what is not None:
            note(frame, what)

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's own
            note(sys._getframe(1), "chance")  # noqa: SLF001 - inspect's is slow
            return function(*args, **kwargs)

        return drawn

    before = sys.getprofile()
    # numpy's functions are of a kind that Python's profiler does not see.
    with _replaced({function: noted(function) for function in _OF_NUMPY}):
        sys.setprofile(called)
        try:
            outputs_of(module, inputs)
        finally:
            sys.setprofile(before)
    return found


def _kind(function: object) -> Read | None:
    name, owner = getattr(function, "__name__", ""), getattr(function, "__self__", None)
    if owner is time and name.removesuffix("_ns") in (*_CLOCKS, *_STOPWATCHES):
        return "clock"
    if function is _URANDOM:
        return "bits"
    if isinstance(owner, type) and issubclass(owner, dt.date) and name in _DATES:
        return "clock"
    if isinstance(owner, random.Random):
        return {"random": "chance", "getrandbits": "bits"}.get(name)  # type: ignore[return-value]
    return None


def _others(what: Read) -> Iterator[contextlib.AbstractContextManager[object]]:
    if what == "clock":
        yield from map(_another_day, _LATER)
        return
    for end in _ENDS:
        yield _numbers_at(end)


@contextlib.contextmanager
def _another_day(distance: dt.timedelta) -> Iterator[None]:
    """Inside the block, it is another day for code that asks in any of Python's usual ways."""
    seconds = distance.total_seconds()
    later: dict[str, Callable[..., Any]] = {
        "time": lambda: _TIME["time"]() + seconds,
        "time_ns": lambda: _TIME["time_ns"]() + int(seconds * 1e9),
    }
    for name in ("localtime", "gmtime", "ctime"):
        later[name] = lambda at=None, name=name: _TIME[name](
            _TIME["time"]() + seconds if at is None else at
        )
    for name, place in (("strftime", 1), ("asctime", 0)):
        later[name] = lambda *given, name=name, place=place: _TIME[name](
            *given, *(() if len(given) > place else (later["localtime"](),))
        )

    for name in _STOPWATCHES:
        later[name] = lambda name=name: _TIME[name]() + abs(seconds)
        later[f"{name}_ns"] = lambda name=name: _TIME[f"{name}_ns"]() + int(abs(seconds) * 1e9)

    class Date(dt.date):
        @classmethod
        def today(cls) -> dt.date:  # type: ignore[override]
            return _DATE.today() + distance

    class Moment(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return _MOMENT.now(tz) + distance

        @classmethod
        def today(cls) -> dt.datetime:  # type: ignore[override]
            return _MOMENT.today() + distance

        @classmethod
        def utcnow(cls) -> dt.datetime:  # type: ignore[override]
            return _MOMENT.now(dt.UTC).replace(tzinfo=None) + distance

    changes = {_TIME[name]: function for name, function in later.items()}
    with _replaced({**changes, _DATE: Date, _MOMENT: Moment}):
        yield


_URANDOM = os.urandom
_TIME = {
    name: getattr(time, name)
    for name in (*_CLOCKS, *_STOPWATCHES, *(f"{each}_ns" for each in _STOPWATCHES))
}
_DATE, _MOMENT = dt.date, dt.datetime


@contextlib.contextmanager
def _numbers_at(end: float) -> Iterator[None]:
    """Inside the block, random numbers are at one end of their range."""

    def at_end(function: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function's own
            found = function(*args, **kwargs)
            if isinstance(found, float):
                return end
            if isinstance(found, np.ndarray) and found.dtype.kind == "f":
                return np.full_like(found, end)
            return found

        return drawn

    others = {function: functools.partial(at, end) for function, at in _AT_END.items()}
    with _replaced({**{function: at_end(function) for function in _UNIFORM}, **others}):
        yield


@functools.cache
def _own_modules() -> list[types.ModuleType]:
    """Return the loaded modules that hold what is replaced: to look through all takes a while."""
    return [
        module
        for module in list(sys.modules.values())
        if module in (time, dt, os, random, np.random)
        or ((file := getattr(module, "__dict__", {}).get("__file__")) and not is_tool_path(file))
    ]


@contextlib.contextmanager
def _replaced(changes: dict[Any, Any]) -> Iterator[None]:
    """Inside the block, functions and classes are replaced in their own modules, and in all files
    that are no library's.
    """
    done: list[tuple[Any, str, Any]] = []
    by_identity = {id(original): other for original, other in changes.items()}
    try:
        for module in _own_modules():
            for name, value in list(vars(module).items()):
                if id(value) in by_identity and not module.__name__.startswith("convkit."):
                    done.append((module, name, value))
                    setattr(module, name, by_identity[id(value)])
        yield
    finally:
        for module, name, value in done:
            setattr(module, name, value)


def _unknown(line: str) -> Finding:
    return Finding(
        "N513",
        f"the original draws random bits in Python at {line}, and returns the same for one"
        " or two others; for the rest it may not, and an export keeps what it had when it was made",
        Place(source=line),
        {"line": line},
        Remedy("Make it a constant, or an input of the model."),
    )


def _finding(line: str, what: Read) -> Finding:
    how = "reads the clock" if what == "clock" else "draws random numbers in Python"
    other = "on another day" if what == "clock" else "for other numbers"
    return Finding(
        "N303",
        f"the original {how} at {line}, and returns different outputs {other}: an export keeps what"
        " it had when it was made. No conversion can match it",
        Place(source=line),
        {"change": "clock" if what == "clock" else "chance", "proven": True},
        Remedy(
            "Make it a constant, or an input of the model: a graph keeps the one that it was"
            " exported with."
        ),
        severity="error",
    )
