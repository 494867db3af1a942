"""`keep_float32: auto`: the smallest set of modules to keep in float32 so that a target meets its tolerance.

A plan is judged by its simulation on all cases. Where it fails, one graph in which every module's rounding can be
switched shows, on the case that failed, what each kind of module costs alone. Roundings are independent, so their
errors add by their squares: the costliest are kept until what is left fits the tolerance, and whatever proves
unnecessary on the same graph is let go. The plan is then simulated on all cases again, at most three times.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.cases.judged import JudgedCase
from convkit.worker.numerics.constants import scan_constants
from convkit.worker.numerics.limits import Limits, overshoot
from convkit.worker.numerics.metrics import compare
from convkit.worker.numerics.reductions import open_session
from convkit.worker.numerics.simulation import simulate
from convkit.worker.numerics.switched_rounding import SwitchedRounding
from convkit.worker.precision.convert import convert
from convkit.worker.precision.naming import as_patterns, general_path
from convkit.worker.precision.options import LowPrecision
from convkit.worker.precision.plan import Assignment, PrecisionPlan, assign, nodes_with_modules, touches_float32
from convkit.worker.protocol import PlanRound

MOST_REFINEMENTS = 3
# Errors add by chance and other cases differ from the one that is looked at: a plan is made for a smaller error.
_MARGIN = 0.7

# The overshoot of a set of low modules.
Share = Callable[[Collection[str]], float]


@dataclasses.dataclass(frozen=True)
class Search:
    """What was found: the precision with its patterns, whether it meets the tolerance, and each round on the way."""

    precision: LowPrecision
    met: bool
    rounds: tuple[PlanRound, ...]


@dataclasses.dataclass(frozen=True)
class _Measured:
    case: str
    overshoot: float

    @property
    def met(self) -> bool:
        return self.overshoot <= 1


def search_plan(
    model: ir.Model,
    precision: LowPrecision,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    *,
    threads: int | None = None,
) -> Search:
    """Find what must stay in float32 for a prepared model to meet the limits, by output, in every case.

    Cases in which the original itself is not finite are for verification to report; they are passed over.
    """
    return _Search(model, precision, cases, limits, threads).run()


class _Search:
    def __init__(
        self,
        model: ir.Model,
        precision: LowPrecision,
        cases: Mapping[str, JudgedCase],
        limits: Mapping[str, Limits],
        threads: int | None,
    ) -> None:
        self.model = model
        self.cases = {name: case for name, case in cases.items() if _is_sound(case)}
        self.limits = limits
        self.threads = threads
        scans = scan_constants(model, precision.default)
        self.asked_to_saturate = precision.saturate
        saturate = precision.saturate or any(scan.is_mask and scan.overflowing for scan in scans)
        self.precision = dataclasses.replace(precision, keep_float32=(), saturate=saturate)
        modules = [module for node, module in nodes_with_modules(model) if touches_float32(node)]
        self.modules = list(dict.fromkeys(modules))
        self.rounds: list[PlanRound] = []

    def run(self) -> Search:
        kept: frozenset[str] = frozenset()
        measured = self.measure(kept)
        looked_at: list[str] = []
        margin = _MARGIN
        if not measured.met:
            dtype, saturate = self.precision.default, self.precision.saturate
            with SwitchedRounding(self.model, dtype, saturate=saturate, threads=self.threads) as switched:
                for _ in range(MOST_REFINEMENTS):
                    if measured.case in looked_at:
                        margin /= max(measured.overshoot, 1.2) if math.isfinite(measured.overshoot) else 2.0
                    looked_at = list(dict.fromkeys([*looked_at, measured.case]))
                    kept = self.refined(switched, looked_at, margin)
                    measured = self.measure(kept)
                    if measured.met:
                        break
        found = dataclasses.replace(
            self.precision, keep_float32=self.patterns(kept), saturate=self.needs_saturation(kept)
        )
        return Search(found, measured.met, tuple(self.rounds))

    def needs_saturation(self, kept: Collection[str]) -> bool:
        """Say whether a constant beyond the range is left that is stored in the low type."""
        left = scan_constants(self.model, self.precision.default, self.assignment(kept))
        return self.asked_to_saturate or (self.precision.saturate and any(scan.overflowing for scan in left))

    def patterns(self, kept: Collection[str]) -> tuple[str, ...]:
        return tuple(as_patterns([module for module in self.modules if module in kept], self.modules))

    def assignment(self, kept: Collection[str]) -> Assignment:
        return assign(self.model, PrecisionPlan(self.precision.default, self.patterns(kept)))

    def measure(self, kept: Collection[str]) -> _Measured:
        """Simulate a plan on every case; return the worst."""
        lowered = convert(self.model, self.assignment(kept), saturate=self.precision.saturate).model
        simulation = simulate(lowered)
        worst = _Measured("", 0.0)
        with tempfile.TemporaryDirectory(prefix="convkit-plan-") as folder:
            path = Path(folder) / "simulation.onnx"
            ir.save(simulation, path, external_data="simulation.data")
            session = open_session(path, None, self.threads)
            names = [output.name or "" for output in simulation.graph.outputs]
            for name, case in self.cases.items():
                found = dict(zip(names, session.run(names, dict(case.feeds)), strict=True))
                share = self.overshoot(case, found)
                if not share <= worst.overshoot:
                    worst = _Measured(name, share)
        factor = worst.overshoot if math.isfinite(worst.overshoot) else None
        self.rounds.append(PlanRound(self.patterns(kept), factor, worst.case))
        return worst

    def overshoot(self, case: JudgedCase, found: Mapping[str, np.ndarray]) -> float:
        shares = [
            overshoot(compare(name, values, found[name], case.padding.get(name)), self.limits[name])
            for name, values in case.expected.items()
            if name in found
        ]
        return max(shares, default=math.inf)

    def refined(self, switched: SwitchedRounding, cases: Sequence[str], margin: float) -> frozenset[str]:
        """Return the modules to keep in float32 for some cases to stay within a share of the tolerance."""

        def share(low: Collection[str]) -> float:
            judged = (self.cases[name] for name in cases)
            return max(self.overshoot(case, switched.run(case.feeds, low)) for case in judged)

        groups = list(_groups(switched.modules))
        costs = {group: share(group) for group in groups}
        baseline = share(())  # what the exported graph itself differs by
        ranked = sorted(groups, key=lambda group: -costs[group])
        low: list[tuple[str, ...]] = list(ranked)
        while low and not _together([costs[group] for group in low], baseline) <= margin:
            low.pop(0)
        kept = [group for group in ranked if group not in low]
        while kept and low and not share(_union(low)) <= margin:
            kept.append(low.pop(0))
        for group in reversed(list(kept)):  # the cheapest first
            if math.isfinite(costs[group]) and share(_union([*low, group])) <= margin:
                low.append(group)
                kept.remove(group)
        return _needed(kept, low, share, margin)


def _needed(
    kept: Sequence[tuple[str, ...]], low: Sequence[tuple[str, ...]], share: Share, margin: float
) -> frozenset[str]:
    """Return the modules of the kept groups without those that need not be kept with their likes.

    A layer that overflows is often one of many; half of them or more are named together anyway.
    """
    needed = {module for group in kept for module in group}
    lowered = _union(low)
    for group in kept:
        alone = [module for module in group if not share((*lowered, module)) <= margin]
        if 2 * len(alone) < len(group):
            candidate = tuple(module for module in group if module not in alone)
            if share((*lowered, *candidate)) <= margin:
                lowered = (*lowered, *candidate)
                needed -= set(candidate)
    return frozenset(needed)


def _groups(modules: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the modules that differ in numbers only, together."""
    groups: dict[str, list[str]] = {}
    for module in modules:
        groups.setdefault(general_path(module), []).append(module)
    yield from map(tuple, groups.values())


def _union(groups: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(module for group in groups for module in group)


def _together(costs: Sequence[float], baseline: float) -> float:
    """Return what costs come to together: independent errors add by their squares, above what is there anyway."""
    return math.sqrt(baseline**2 + sum(max(cost**2 - baseline**2, 0.0) for cost in costs))


def _is_sound(case: JudgedCase) -> bool:
    return all(np.isfinite(np.asarray(values, np.float32)).all() for values in case.expected.values())
