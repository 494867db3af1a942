"""Resolves a Core ML target's precision for its program, and searches for what must stay in
float32.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from convkit.protocol.findings.finding import Finding
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.messages import LowPrecision, ModulePrecision, PlanRound, is_of_sweep
from convkit.protocol.metrics.limits import Limits
from convkit.runtimes.coreml.conversion.operation_selection import operation_paths, stays_float32
from convkit.runtimes.coreml.packages.input_types import as_served
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.mil.evaluation.program_ranges import (
    ProgramRanges,
    run_ranges,
    weights_by_module,
)
from convkit.worker.mil.evaluation.switched_program import TAKEN_FOR_INFINITY, SwitchedEvaluator
from convkit.worker.mil.program import Program
from convkit.worker.mil.program_constants import scan_constants
from convkit.worker.precision.search.float32_modules import FoundModules, search_modules
from convkit.worker.precision.search.search_findings import headroom_findings, searched_finding
from convkit.worker.precision.search.unheld_values import unheld_of_modules
from convkit.worker.precision.search_judgment import Outputs, outputs_of


@dataclasses.dataclass(frozen=True)
class Decision:
    """A resolved precision, its modules in program order, and the rounds of the search, if there
    was one.
    """

    precision: LowPrecision
    modules: tuple[ModulePrecision, ...]
    rounds: tuple[PlanRound, ...]
    findings: tuple[Finding, ...]


def decide(
    program: Program,
    modules: Mapping[str, str],
    precision: LowPrecision,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    *,
    is_auto: bool,
) -> Decision:
    """Measure a float32 program on the cases; with `is_auto`, find what stays in float32 (N208,
    N209).

    N210 reports the modules that exceed float16. Raises UnsupportedOperation, EvaluationError.
    """
    served = {
        name: dataclasses.replace(case, feeds=_served(program, case))
        for name, case in cases.items()
    }
    findings: list[Finding] = []
    searched: FoundModules | None = None
    if is_auto:
        whole = _SearchedProgram(program, modules, precision)
        searched = search_modules(whole, served, limits)
        patterns = searched.patterns
        saturate = precision.saturate or whole.needs_saturation(patterns)
        precision = dataclasses.replace(precision, keep_float32=patterns, saturate=saturate)
    usual = {
        name: case.feeds
        for name, case in served.items()
        if not (case.only_finite or is_of_sweep(name))
    }
    ranges = run_ranges(program, modules, usual)
    rows = _rows(ranges, weights_by_module(program, modules), precision)
    if searched is not None:
        unheld = unheld_of_modules(rows, precision, usual.values())
        findings.append(searched_finding(precision, searched, unheld))
    findings += headroom_findings(rows, precision)
    rounds = searched.rounds if searched is not None else ()
    return Decision(precision, rows, rounds, tuple(findings))


def _served(program: Program, case: JudgedCase) -> Outputs:
    types = {feature.name: feature.dtype for feature in program.inputs}
    return {
        name: as_served(array, types[name]) for name, array in case.feeds.items() if name in types
    }


class _SearchedProgram:
    """A float32 program for which a plan is searched; masks of float32's lowest value are saturated
    on the way.
    """

    def __init__(
        self, program: Program, modules: Mapping[str, str], precision: LowPrecision
    ) -> None:
        self._program = program
        self._module_of = modules
        self._precision = precision
        self._large = [scan for scan in scan_constants(program) if scan.beyond]
        is_masked = any(scan.largest >= TAKEN_FOR_INFINITY for scan in self._large)
        self._evaluator = SwitchedEvaluator(
            program, modules, saturate=precision.saturate or is_masked
        )
        self._saturates = precision.saturate or is_masked
        self.modules = self._evaluator.modules

    def by_operation(self) -> "_SearchedProgram":
        """Return the program with each module's types of operations in place of modules."""
        paths = operation_paths(self._program, self._module_of)
        return _SearchedProgram(self._program, paths, self._precision)

    def needs_saturation(self, patterns: tuple[str, ...]) -> bool:
        """Return True if a constant that becomes infinity is still used by float16 operations."""
        kept = dataclasses.replace(self._precision, keep_float32=patterns)
        return self._saturates and any(
            not stays_float32(self._module_of.get(consumer.name, consumer.module), kept)
            for scan in self._large
            for consumer in scan.consumers
        )

    def planned(
        self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
    ) -> Iterator[tuple[str, Outputs]]:
        """Evaluate a plan on every case."""
        kept = dataclasses.replace(self._precision, keep_float32=patterns)
        low = [module for module in self.modules if not stays_float32(module, kept)]
        for name, case in cases.items():
            yield name, outputs_of(functools.partial(self._evaluator.run, case.feeds, low))

    def switched(self) -> SwitchedEvaluator:
        """Return the program with switchable rounding."""
        return self._evaluator


def _rows(
    ranges: ProgramRanges, weights: Mapping[str, int], precision: LowPrecision
) -> tuple[ModulePrecision, ...]:
    rows = []
    for module, operations in ranges.operations.items():
        kept = stays_float32(module, precision)
        elements = weights.get(module, 0)
        largest = ranges.largest.get(module)
        magnitude = largest.magnitude if largest is not None else 0.0
        rows.append(
            ModulePrecision(
                module=module,
                low=0 if kept else operations,
                float32=operations if kept else 0,
                low_weights=0 if kept else elements,
                float32_weights=elements if kept else 0,
                reasons=("kept in float32 by the recipe",) if kept else (),
                headroom=LIMITS[precision.default].largest / magnitude if magnitude else None,
                largest=magnitude,
                tensor=largest.tensor if largest is not None else "",
                case=largest.case if largest is not None else "",
            )
        )
    return tuple(rows)
