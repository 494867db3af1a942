"""Searches for the smallest set of modules to keep in float32 so that the outputs meet their
limits, for any runtime.

A plan is judged on all cases. If it fails, a model with switchable rounding per module shows, on
a failing case, the cost of each kind of module alone: on the smallest that fails about as badly as
the worst. Roundings are independent, so their errors add in quadrature: the costliest modules are
kept until the rest fits the tolerance, and those that prove unnecessary on the same model are
released. The plan is then judged on all cases again, at most six times. Where that leaves no
module in low precision, each module's types of operations are searched in the same way.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from convkit.protocol.contract import DType
from convkit.protocol.messages import PlanRound, is_of_sweep
from convkit.protocol.metrics.limits import Limits
from convkit.protocol.module_naming import as_patterns, general_path
from convkit.protocol.module_patterns import matches
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.array_rounding import round_array
from convkit.worker.precision.search_judgment import (
    Outputs,
    Round,
    compared,
    elements,
    judge_round,
    outputs_of,
    overshoot_in,
    sound_cases,
)

# Cases of sweeps, the smallest.
_MOST_SWEPT = 8
MOST_REFINEMENTS = 6
# Runs that a search looks for fewer modules with; after them, it keeps what the costs say.
_MOST_RUNS = 600
# Seconds for plans where costs say nothing, or as many as the search took until then.
_GROWTH = 10.0
# Errors add randomly, and other cases differ from the examined one, so plans aim for a smaller
# error.
_MARGIN = 0.7
# Up to this many times its limits, a case that was not looked at is nearly within them: the largest
# one has more elements than others, and so a larger largest error.
_NEARLY = 2.0
# Each type of operation takes a few runs of the model.
_MOST_OPERATIONS = 64

# Returns the overshoot of a set of low-precision modules.
Share = Callable[[Collection[str]], float]


class Switched(Protocol):
    """A model with switchable rounding per module."""

    @property
    def modules(self) -> Sequence[str]:
        """The modules that can be lowered: paths, with the root as an empty one."""
        ...

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> Outputs:
        """Return the outputs by name with the given modules lowered and all others in float32."""
        ...


class Searched(Protocol):
    """A model for which a plan is searched."""

    @property
    def modules(self) -> Sequence[str]:
        """Every module that a plan may keep in float32, in model order."""
        ...

    def planned(
        self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
    ) -> Iterator[tuple[str, Outputs]]:
        """Yield each case's outputs from the model with the patterns' modules kept in float32."""
        ...

    def switched(self) -> AbstractContextManager[Switched]:
        """Open the model with switchable rounding."""
        ...

    def by_operation(self) -> "Searched | None":
        """Return the model with types of operations in place of modules; None if it keeps modules
        as a whole.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FoundModules:
    """The patterns kept in float32, whether they meet the limits, and each round of the search; the
    first has nothing kept.

    `keeps_all`: the patterns are all there is. `inputs` are known then: those that exceed a limit
    by being rounded themselves, with nothing else rounded, and by what factor.
    """

    patterns: tuple[str, ...]
    met: bool
    rounds: tuple[PlanRound, ...]
    keeps_all: bool = False
    inputs: Mapping[str, float] = dataclasses.field(default_factory=dict)


def search_modules(
    searched: Searched,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    low: DType = "float16",
) -> FoundModules:
    """Find what must stay in float32 for a model to meet the limits, by output, in every case.

    Cases in which the original itself is not finite are skipped, since verification reports them.
    Those of sweeps are looked at last.
    """
    found = _Search(searched, cases, limits).run()
    if not _keeps_all(found.patterns, searched.modules):
        return found
    if not found.met:  # no finer plan is better than everything in float32
        return dataclasses.replace(found, keeps_all=True)
    finer = searched.by_operation()
    if finer is not None and len(set(map(general_path, finer.modules))) <= _MOST_OPERATIONS:
        again = _Search(finer, cases, limits).run()
        rounds = (*found.rounds, *again.rounds)
        if again.met and not _keeps_all(again.patterns, finer.modules):
            return dataclasses.replace(again, rounds=rounds)
        found = dataclasses.replace(found, rounds=rounds)
    inputs = _costly_inputs(searched, cases, limits, low)
    return dataclasses.replace(found, keeps_all=True, inputs=inputs)


def _costly_inputs(
    searched: Searched, cases: Mapping[str, JudgedCase], limits: Mapping[str, Limits], low: DType
) -> dict[str, float]:
    """Return the inputs that exceed a limit by being rounded themselves, with nothing else rounded:
    coordinates and times, whose steps are coarse in a low type, whatever computes with them.
    """
    usual = {name: case for name, case in sound_cases(cases).items() if not case.only_finite}
    smallest = sorted(usual, key=lambda name: elements(usual[name]))[:_MOST_SWEPT]
    found: dict[str, float] = {}
    with searched.switched() as switched:
        for case in (usual[name] for name in smallest):
            for name, values in case.feeds.items():
                if values.dtype != np.float32:
                    continue
                rounded = round_array(values, low).astype(np.float32)
                given = {**case.feeds, name: rounded}
                outputs = outputs_of(functools.partial(switched.run, given, ()))
                cost = overshoot_in(case, compared(case, outputs), limits)
                if not cost <= 1:
                    found[name] = max(cost, found.get(name, 0.0))
    return found


def _keeps_all(patterns: Collection[str], modules: Collection[str]) -> bool:
    return bool(patterns) and all(
        any(matches(pattern, module) for pattern in patterns) for module in modules
    )


class _Search:
    def __init__(
        self, searched: Searched, cases: Mapping[str, JudgedCase], limits: Mapping[str, Limits]
    ) -> None:
        self.searched = searched
        sound = sound_cases(cases)
        self.cases = {name: case for name, case in sound.items() if not is_of_sweep(name)}
        # Seldom of use: they are measured once a plan meets the limits in the others; a few if they
        # take longer than all of these.
        swept = {name: case for name, case in sound.items() if is_of_sweep(name)}
        most = sum(map(elements, self.cases.values()))
        quickest = sorted(swept, key=lambda name: elements(swept[name]))
        sizes = itertools.accumulate(elements(swept[name]) for name in quickest)
        self.swept = {
            name: swept[name]
            for place, (name, size) in enumerate(zip(quickest, sizes, strict=True))
            if place < _MOST_SWEPT or size <= most
        }
        self.limits = limits
        self.began = time.monotonic()
        self.rounds: list[PlanRound] = []
        # By case and lowered modules.
        self.shares: dict[tuple[str, frozenset[str]], float] = {}

    def run(self) -> FoundModules:
        kept: frozenset[str] = frozenset()
        measured = self.measure(kept)
        looked_at: list[str] = []
        margin = _MARGIN
        if self.cases and not measured.met:
            with self.searched.switched() as switched:
                for left in reversed(range(MOST_REFINEMENTS)):
                    case = self.to_examine(measured, looked_at, is_last=left == 0)
                    if case in looked_at:
                        margin /= _tighter(measured.overshoot)
                    looked_at = list(dict.fromkeys([*looked_at, case]))
                    before, kept = kept, self.refined(switched, looked_at, margin)
                    if kept == before:  # a case that fails alike does not show what the worst does
                        margin /= _tighter(measured.overshoot) if measured.case in looked_at else 1
                        looked_at = list(dict.fromkeys([*looked_at, measured.case]))
                        kept = self.refined(switched, looked_at, margin)
                    measured = self.measure(kept)
                    if measured.met:
                        break
                else:
                    kept, measured = self.grown(switched, looked_at)
        return FoundModules(self.patterns(kept), measured.met, tuple(self.rounds))

    def to_examine(self, measured: Round, looked_at: Sequence[str], *, is_last: bool) -> str:
        """Return the case to plan for, besides those that were looked at. If another is nearly
        within its limits, and takes longer than they do, one of these again: a smaller error there
        makes a smaller one everywhere.
        """
        case = measured.case if measured.examined in looked_at else measured.examined
        if not looked_at or is_last or not measured.overshoot < _NEARLY:
            return case
        longest = max(looked_at, key=lambda name: elements(self.cases[name]))
        takes_longer = elements(self.cases[case]) > elements(self.cases[longest])
        return longest if takes_longer else case

    def patterns(self, kept: Collection[str]) -> tuple[str, ...]:
        modules = self.searched.modules
        return tuple(as_patterns([module for module in modules if module in kept], modules))

    def measure(self, kept: Collection[str]) -> Round:
        """Judge a plan on every case; a sweep's that fails is one of the others from then on."""
        judged = self.judged(kept, self.cases)
        if judged.met and self.cases and self.swept:
            judged = self.judged(kept, self.swept)
            failing = () if judged.met else (judged.case, judged.examined)
            self.cases |= {name: self.swept.pop(name) for name in dict.fromkeys(failing)}
        self.rounds.append(judged.as_protocol())
        return judged

    def judged(self, kept: Collection[str], cases: Mapping[str, JudgedCase]) -> Round:
        patterns = self.patterns(kept)
        found = self.searched.planned(patterns, cases)
        return judge_round(patterns, cases, found, self.limits)

    def overshoot(self, case: JudgedCase, found: Outputs) -> float:
        return overshoot_in(case, compared(case, found), self.limits)

    def refined(self, switched: Switched, cases: Sequence[str], margin: float) -> frozenset[str]:
        """Return the modules to keep in float32 so that some cases stay within a fraction of the
        tolerance.
        """
        share = functools.partial(self.share, switched, cases)
        groups = list(_groups(switched.modules))
        costs = {group: share(group) for group in groups}
        baseline = share(())  # the exported graph's own error
        ranked = sorted(groups, key=lambda group: -costs[group])
        low: list[tuple[str, ...]] = list(ranked)
        while low and not _together([costs[group] for group in low], baseline) <= margin:
            low.pop(0)
        kept = [group for group in ranked if group not in low]
        if self.is_over():
            return frozenset(_union(kept))
        while kept and low and not share(_union(low)) <= margin:
            kept.append(low.pop(0))
        for group in reversed(list(kept)):  # cheapest first
            if self.is_over():
                return frozenset(_union(kept))
            if math.isfinite(costs[group]) and share(_union([*low, group])) <= margin:
                low.append(group)
                kept.remove(group)
        return _needed(kept, low, share, margin, self.is_over)

    def share(self, switched: Switched, cases: Sequence[str], low: Collection[str]) -> float:
        """Return the largest overshoot over some cases with modules lowered."""
        lowered = frozenset(low)
        for name in cases:
            if (name, lowered) not in self.shares:
                case = self.cases[name]
                found = outputs_of(functools.partial(switched.run, case.feeds, lowered))
                self.shares[name, lowered] = self.overshoot(case, found)
        return max(self.shares[name, lowered] for name in cases)

    def grown(self, switched: Switched, cases: Sequence[str]) -> tuple[frozenset[str], Round]:
        """Return everything in float32, without the groups that were found to meet the limits in
        every case when they are lowered: cheapest first, all at once and in halves.

        Where a decision hangs on a rounded value, as a number of rows does, errors are infinite or
        nothing: what fails says little of what else does, and each case fails of its own.
        """
        everything = frozenset(self.searched.modules)
        kept, measured = everything, self.measure(everything)
        if not measured.met:
            return kept, measured
        costs = {group: self.share(switched, cases, group) for group in _groups(switched.modules)}
        cheap = sorted((g for g, cost in costs.items() if cost <= 1), key=lambda g: costs[g])
        left, lowered = [cheap], list[tuple[str, ...]]()
        now = time.monotonic()
        end = now + max(now - self.began, _GROWTH)
        while left and (groups := left.pop(0)) and time.monotonic() < end:
            plan = everything.difference(_union([*lowered, *groups]))
            judged = self.measure(plan)
            if judged.met:
                kept, measured = plan, judged
                lowered += groups
            elif len(groups) > 1:
                half = len(groups) // 2
                left[:0] = [groups[:half], groups[half:]]
        return kept, measured

    def is_over(self) -> bool:
        """Return True if no more runs may be spent on keeping fewer modules."""
        return len(self.shares) > _MOST_RUNS


def _tighter(overshoot: float) -> float:
    """Return by how much less a plan must cost on the examined cases if it failed by a factor."""
    return max(overshoot, 1.2) if math.isfinite(overshoot) else 2.0


def _needed(
    kept: Sequence[tuple[str, ...]],
    low: Sequence[tuple[str, ...]],
    share: Share,
    margin: float,
    is_over: Callable[[], bool],
) -> frozenset[str]:
    """Return the modules of the kept groups, without those that need not be kept along with their
    counterparts.

    A layer that overflows is often one of many; if at least half of them do, they are named
    together anyway, unless nothing else is lowered.
    """
    needed = {module for group in kept for module in group}
    lowered = _union(low)
    for group in kept:
        if is_over():
            break
        most = len(group) / 2 if lowered else len(group)
        alone: list[str] = []
        for module in group:
            if len(alone) < most and not share((*lowered, module)) <= margin:
                alone.append(module)
        if len(alone) < most:
            candidate = tuple(module for module in group if module not in alone)
            if share((*lowered, *candidate)) <= margin:
                lowered = (*lowered, *candidate)
                needed -= set(candidate)
    return frozenset(needed)


def _groups(modules: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield groups of modules that differ only in numbers."""
    groups: dict[str, list[str]] = {}
    for module in modules:
        groups.setdefault(general_path(module), []).append(module)
    yield from map(tuple, groups.values())


def _union(groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(module for group in groups for module in group)


def _together(costs: Sequence[float], baseline: float) -> float:
    """Return the combined cost: independent errors, in excess of the baseline, add in
    quadrature.
    """
    return math.sqrt(baseline**2 + sum(max(cost**2 - baseline**2, 0.0) for cost in costs))
