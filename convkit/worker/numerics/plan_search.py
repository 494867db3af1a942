"""`keep_float32: auto`: the smallest set of modules to keep in float32 so that a target meets its tolerance.

A plan is judged by its simulation on the cases. Where it fails, one run of the simulation beside float32 says, tensor
by tensor, where values overflow and where error arises, and the modules that are to blame are kept in float32.
"""

import dataclasses
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.numerics.constants import ConstantScan, scan_constants
from convkit.worker.numerics.culprits import find_culprits
from convkit.worker.numerics.error_growth import TensorError, simulate_with_errors
from convkit.worker.numerics.limits import Limits, overshoot
from convkit.worker.numerics.metrics import compare
from convkit.worker.numerics.reductions import open_session
from convkit.worker.numerics.simulation import simulate
from convkit.worker.precision.convert import convert
from convkit.worker.precision.naming import as_patterns
from convkit.worker.precision.options import LowPrecision
from convkit.worker.precision.plan import Assignment, PrecisionPlan, assign, nodes_with_modules, touches_float32
from convkit.worker.protocol import PlanRound

MOST_REFINEMENTS = 3
# Errors of many roundings add up by chance: a plan is made for an error somewhat smaller than what is allowed.
_MARGIN = 0.7


@dataclasses.dataclass(frozen=True)
class JudgedCase:
    """One case: inputs and the original's outputs by name, and where outputs mean nothing (see `compare`)."""

    feeds: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    padding: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Search:
    """What was found: the precision with its patterns, whether it meets the tolerance, and each round on the way.

    `unnamed` says that modules had to be kept that no pattern names: nodes of the model's root.
    """

    precision: LowPrecision
    met: bool
    rounds: tuple[PlanRound, ...]
    unnamed: bool


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

    Cases in which the original itself is not finite are for verification to report; they are passed over. At most
    three refinements, each followed by a simulation; what was kept too much is taken back while rounds are left.
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
        saturate = precision.saturate or any(scan.is_mask and scan.overflowing for scan in scans)
        self.precision = dataclasses.replace(precision, keep_float32=(), saturate=saturate)
        self.modules = list(
            dict.fromkeys(module for node, module in nodes_with_modules(model) if touches_float32(node))
        )
        self.rounds: list[PlanRound] = []
        self.unnamed = False

    def run(self) -> Search:
        chosen: dict[str, float] = {}  # modules, by how much they add to the error
        measured = self.measure(chosen)
        refinements = 0
        while not measured.met and refinements < MOST_REFINEMENTS:
            refinements += 1
            before = set(chosen)
            chosen = self.refined(chosen, measured)
            if set(chosen) == before:
                break
            measured = self.measure(chosen)
        while measured.met and refinements < MOST_REFINEMENTS and len(chosen) > 1:
            refinements += 1
            fewer = self.fewer(chosen)
            if self.patterns(fewer) == self.patterns(chosen) or not self.measure(fewer).met:
                break
            chosen = fewer
        kept = dataclasses.replace(self.precision, keep_float32=self.patterns(chosen))
        return Search(kept, measured.met, tuple(self.rounds), self.unnamed)

    def patterns(self, chosen: Mapping[str, float]) -> tuple[str, ...]:
        return tuple(as_patterns(chosen, self.modules))

    def assignment(self, chosen: Mapping[str, float]) -> Assignment:
        return assign(self.model, PrecisionPlan(self.precision.default, self.patterns(chosen)))

    def measure(self, chosen: Mapping[str, float]) -> _Measured:
        """Simulate a plan on every case; return the worst."""
        lowered = convert(self.model, self.assignment(chosen), saturate=self.precision.saturate).model
        simulation = simulate(lowered)
        worst = _Measured("", 0.0)
        with tempfile.TemporaryDirectory(prefix="convkit-plan-") as folder:
            path = Path(folder) / "simulation.onnx"
            ir.save(simulation, path, external_data="simulation.data")
            session = open_session(path, None, self.threads)
            names = [output.name or "" for output in simulation.graph.outputs]
            for name, case in self.cases.items():
                found = dict(zip(names, session.run(names, dict(case.feeds)), strict=True))
                share = max((self.overshoot(output, case, found) for output in case.expected), default=math.inf)
                if not share <= worst.overshoot:
                    worst = _Measured(name, share)
        factor = worst.overshoot if math.isfinite(worst.overshoot) else None
        self.rounds.append(PlanRound(self.patterns(chosen), factor, worst.case))
        return worst

    def overshoot(self, output: str, case: JudgedCase, found: Mapping[str, np.ndarray]) -> float:
        if output not in found:
            return math.inf
        metrics = compare(output, case.expected[output], found[output], case.padding.get(output))
        return overshoot(metrics, self.limits[output])

    def refined(self, chosen: Mapping[str, float], measured: _Measured) -> dict[str, float]:
        """Return the chosen modules and those to blame for what was measured."""
        assignment = self.assignment(chosen)
        feeds = {measured.case: self.cases[measured.case].feeds}
        saturate = self.precision.saturate
        errors = simulate_with_errors(self.model, assignment, feeds, saturate=saturate, threads=self.threads)
        scans = scan_constants(self.model, self.precision.default, assignment)
        found = dict(chosen)
        if any(error.nonfinite_simulated > error.nonfinite_reference for error in errors):
            for module in self.overflowing(errors, scans):
                found[module] = math.inf
        if set(found) == set(chosen):
            found |= self.noisiest(chosen, errors, measured.overshoot)
        self.unnamed |= "" in found
        return found

    def overflowing(self, errors: Sequence[TensorError], scans: Sequence[ConstantScan]) -> list[str]:
        """Return the modules in which values overflow or vanish, with all that hand them on."""
        if self.precision.saturate:
            scans = [scan for scan in scans if not scan.overflowing]
        culprits = find_culprits(self.model, self.precision.default, errors, scans)
        modules = [module for bad in culprits.tensors for module in bad.modules]
        modules += [consumer.module for scan in culprits.constants for consumer in scan.consumers]
        if not modules:  # absorbed on the way to the outputs: whatever is not finite may be what makes them wrong
            modules = [error.module for error in errors if error.nonfinite_simulated > error.nonfinite_reference]
        return modules

    def noisiest(self, chosen: Mapping[str, float], errors: Sequence[TensorError], factor: float) -> dict[str, float]:
        """Return the modules in which most error arises, as many as bring it down by a factor.

        What arises in a node is what its result's error has over its operands' (relative to their magnitudes, as
        independent errors add: by their squares).
        """
        relative = {error.tensor: error.relative_error for error in errors}
        arising: dict[str, float] = {}
        for node, module in nodes_with_modules(self.model):
            taken = max(
                (relative.get(value.name or "", 0.0) for value in node.inputs if value is not None), default=0.0
            )
            for value in node.outputs:
                given = relative.get(value.name or "", 0.0)
                if math.isfinite(given) and module not in chosen:
                    arising[module] = arising.get(module, 0.0) + max(given**2 - taken**2, 0.0)
        ranked = sorted(arising.items(), key=lambda item: -item[1])
        left = total = sum(arising.values())
        allowed = total * (_MARGIN / factor) ** 2 if math.isfinite(factor) else 0.0
        found: dict[str, float] = {}
        for module, share in ranked:
            if left <= allowed or share <= 0:
                break
            found[module] = share
            left -= share
        return found

    def fewer(self, chosen: Mapping[str, float]) -> dict[str, float]:
        """Return the half of the chosen modules in which more error arises; what overflows stays."""
        ranked = sorted(chosen.items(), key=lambda item: -item[1])
        certain = sum(math.isinf(share) for _, share in ranked)
        return dict(ranked[: max(certain, (certain + len(ranked)) // 2)])


def _is_sound(case: JudgedCase) -> bool:
    return all(np.isfinite(np.asarray(values, np.float32)).all() for values in case.expected.values())
