"""Counts and iterators that a model's author keeps: what each call moves on."""

import ast
import copy
import itertools
import operator
from typing import Any

# Those that have copies; generators have none.
ITERATORS: tuple[type, ...] = (
    *(itertools.count, type(iter([]))),
    *(type(iter(())), type(iter(range(1)))),
)


def position(iterator: Any) -> object:  # noqa: ANN401 - one of ITERATORS
    """Return what changes if an iterator moves on."""
    count = isinstance(iterator, itertools.count)
    return repr(iterator) if count else operator.length_hint(iterator)


def copied(iterator: Any) -> Any:  # noqa: ANN401 - one of ITERATORS
    """Return an iterator at the same position. Counts have no copies from Python 3.14 on."""
    if isinstance(iterator, itertools.count):
        return itertools.count(*_start_and_step(iterator))
    return copy.copy(iterator)


def next_number(count: "itertools.count[Any]") -> float:
    """Return what a count would return next."""
    return float(_start_and_step(count)[0])


def moved(count: "itertools.count[Any]", by: float) -> "itertools.count[Any]":
    """Return a count that is so much further on."""
    start, *step = _start_and_step(count)
    return itertools.count(start + by, *step)


def _start_and_step(count: "itertools.count[Any]") -> tuple[Any, ...]:
    return tuple(ast.literal_eval(f"[{repr(count).removeprefix('count(').removesuffix(')')}]"))
