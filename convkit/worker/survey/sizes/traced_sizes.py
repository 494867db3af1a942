"""Finds the sizes that a file was traced with, if no others work although the file says so: a
reshape in it may hold numbers of that one example.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping

from convkit.worker.survey.sizes.size_trials import SizeTrial

# How onnxruntime names a node whose input does not fit, and both sizes.
_NODE = r"Name:'(?P<node>[^']*)'.*?"
_RESHAPE = re.compile(
    _NODE + r"Input shape:\{(?P<have>[\d,]+)\}, requested shape:\{(?P<want>[\d,]+)\}", re.DOTALL
)
_OTHERS = (
    re.compile(
        _NODE + r"broadcast an axis by a dimension other than 1\. (?P<have>\d+) by (?P<want>\d+)",
        re.DOTALL,
    ),
    re.compile(_NODE + r"mismatched dimensions of (?P<have>\d+) and (?P<want>\d+)", re.DOTALL),
)
# Runs that may be spent on it. Every axis takes a few, and a size that depends on two takes both.
_MOST_RUNS = 40
_LARGEST = 1 << 20


@dataclasses.dataclass(frozen=True)
class _Mismatch:
    """A node that fails, and by how much its input would have to grow; either way round if it is
    not known which of two sizes is the traced one.
    """

    node: str
    factors: tuple[float, ...]

    @property
    def gap(self) -> float:
        return abs(math.log(self.factors[0]))


@dataclasses.dataclass(frozen=True)
class TracedSizes:
    """Sizes with which a file runs, the run, and the nodes that refused all others."""

    sizes: dict[str, int]
    trial: SizeTrial
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _State:
    sizes: Mapping[str, int]
    trial: SizeTrial


def traced_sizes(
    roles: Mapping[str, str],
    sizes: Mapping[str, int],
    failed: SizeTrial,
    run: Callable[[Mapping[str, int]], SizeTrial],
) -> TracedSizes | None:
    """Return sizes with which the file runs, from a run that failed because a node's input had the
    wrong size; None if no sizes are found. `roles` are those of the axes, `run` runs the file.

    One axis after the other is scaled by what is missing. That is kept if the run then fails at
    another node that had not failed yet, or by less.
    """
    search = _Search(roles, run)
    state: _State | None = _State(dict(sizes), failed)
    nodes: dict[str, None] = {}
    while state is not None and not state.trial.worked:
        if (mismatch := _mismatch(state.trial.reason)) is not None:
            nodes[mismatch.node] = None
        state = search.next(state)
    return TracedSizes(dict(state.sizes), state.trial, tuple(nodes)) if state is not None else None


class _Search:
    def __init__(
        self, roles: Mapping[str, str], run: Callable[[Mapping[str, int]], SizeTrial]
    ) -> None:
        self._run = run
        # Examples have one row more often than any other size.
        self._axes = sorted(roles, key=lambda axis: roles[axis] == "batch")
        self._passed: set[str] = set()
        self._runs = 0

    def next(self, state: _State) -> _State | None:
        """Return a state nearer to one that works; None if there is none."""
        now = _mismatch(state.trial.reason)
        if now is None:
            return None
        nearer: _State | None = None
        for sizes in self._guesses(state.sizes, now):
            if self._runs == _MOST_RUNS:
                break
            self._runs += 1
            other = _State(sizes, self._run(sizes))
            if other.trial.worked:
                return other
            then = _mismatch(other.trial.reason)
            if then is not None and then.node not in {now.node, *self._passed}:
                self._passed.add(now.node)
                return other
            if then is not None and then.node == now.node and then.gap < now.gap:
                nearer = nearer or other
        return nearer

    def _guesses(self, sizes: Mapping[str, int], now: _Mismatch) -> Iterator[dict[str, int]]:
        for axis in self._axes:
            for factor in now.factors:
                scaled = round(sizes[axis] * factor)
                # Strides and windows leave out part of an axis.
                for size in (scaled, scaled + 1, scaled - 1):
                    if 0 < size <= _LARGEST and size != sizes[axis]:
                        yield {**sizes, axis: size}


def _mismatch(reason: str) -> _Mismatch | None:
    if (found := _RESHAPE.search(reason)) is not None:
        have, want = (
            math.prod(int(size) for size in found[side].split(",") if size)
            for side in ("have", "want")
        )
        return _Mismatch(found["node"], (want / have,)) if have and want else None
    for pattern in _OTHERS:
        if (found := pattern.search(reason)) is not None:
            have, want = int(found["have"]), int(found["want"])
            if have and want and have != want:
                return _Mismatch(found["node"], (want / have, have / want))
    return None
