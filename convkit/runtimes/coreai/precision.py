"""The precision stage of Core AI targets: resolves what stays in float32, by executing the model.

Unlike runtimes that are simulated, each plan is converted and run.
"""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision, PrecisionRequest, PrecisionResult, low_type_of
from convkit.protocol.module_patterns import matches
from convkit.runtimes.coreai.conversion import simplifying
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.runtimes.coreai.session import CoreAISession
from convkit.runtimes.coreai.traced_program import computed_nodes, module_of
from convkit.runtimes.coreai.trial_conversions import Trials, outputs_or_none
from convkit.worker.cases.compared_cases import JudgedCase, ladder_cases, plain_cases
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.probing.prepared_model import Unfit, prepare
from convkit.worker.precision.precision_decision import write_decision
from convkit.worker.precision.search.float32_modules import search_modules
from convkit.worker.precision.search.search_findings import searched_finding
from convkit.worker.precision.search_judgment import Outputs, compared, overshoot_in, sound_cases
from convkit.worker.precision.searched_limits import searched_limits, with_derived


def run(
    request: PrecisionRequest[CoreAIOptions], context: Context
) -> tuple[PrecisionResult, list[Finding]]:
    """Resolve a target's precision. A model that differs from the original in float32 as well is
    left as it is: the search for causes explains it.
    """
    precision = request.precision
    if not isinstance(precision, LowPrecision):
        raise StageFailedError(f"{precision!r} needs no precision stage")
    assert request.original is not None  # Core AI targets convert the model itself
    if precision.keep_float32 != "auto":
        write_decision(context.output, precision)
        return PrecisionResult(precision=precision), []
    prepared, findings = prepare(request.original, request.contract, context)
    if isinstance(prepared, Unfit):
        return PrecisionResult(precision=precision), findings
    context.progress("converting to a Core AI model in float32", done=0.2)

    def convert(decompose: tuple[str, ...]) -> tuple[Trials, CoreAISession]:
        options = dataclasses.replace(request.options, decompose=decompose)
        trials = Trials.of(prepared, request.contract, options)
        return trials, trials.session()

    (trials, float32), _ = simplifying(convert, request.options.decompose)
    cases = sound_cases(
        ladder_cases(
            Path(request.reference), request.contract, low_type_of(precision), copies=False
        )
    )
    right = all(
        overshoot_in(
            case, compared(case, outputs_or_none(lambda: float32, case.feeds)), request.limits
        )
        <= 1
        for case in cases.values()
    )
    if not right:
        decided = precision.keeping(())
        write_decision(context.output, decided)
        return PrecisionResult(precision=decided), findings
    context.progress("searching for what must stay in float32", done=0.4)
    _, constants = trials.lowered(precision.keeping(()))
    saturates = precision.saturate or bool(constants)
    searched = SearchedModel(trials, LowPrecision(precision.default, (), saturates))
    plain = plain_cases(Path(request.reference), request.contract, low_type_of(precision))
    every = with_derived({**cases, **plain}, request.derived)
    found = search_modules(searched, every, searched_limits(request))
    decided = LowPrecision(precision.default, found.patterns, saturates)
    write_decision(context.output, decided)
    findings.append(searched_finding(decided, found))
    return PrecisionResult(decided, rounds=found.rounds), findings


class SearchedModel:
    """A model for which a plan is searched; each plan is converted once."""

    def __init__(self, trials: Trials, precision: LowPrecision) -> None:
        self._trials = trials
        self._precision = precision
        self._sessions: dict[tuple[str, ...], CoreAISession] = {}
        self.modules = list(dict.fromkeys(map(module_of, computed_nodes(trials.program))))

    def planned(
        self, patterns: tuple[str, ...], cases: Mapping[str, JudgedCase]
    ) -> Iterator[tuple[str, Outputs]]:
        """Execute a plan on every case."""
        for name, case in cases.items():
            yield name, self._outputs(patterns, case.feeds)

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> Outputs:
        """Return the outputs by name with the given modules in float16."""
        # A pattern with a dot at its end names a module without those below.
        kept = [f"{module}." if module else "." for module in self.modules if module not in low]
        return self._outputs(tuple(kept), feeds)

    @contextlib.contextmanager
    def switched(self) -> "Iterator[SearchedModel]":
        """Return the model itself."""
        yield self

    def by_operation(self) -> None:
        """Core AI's converter is given modules as a whole."""

    @staticmethod
    def keeps(patterns: tuple[str, ...], module: str) -> bool:
        """Say whether patterns keep a module in float32."""
        return any(matches(each, module) for each in patterns)

    def _outputs(self, patterns: tuple[str, ...], feeds: Mapping[str, np.ndarray]) -> Outputs:
        return outputs_or_none(lambda: self._session(patterns), feeds)

    def _session(self, patterns: tuple[str, ...]) -> CoreAISession:
        kept = tuple(module for module in self.modules if self.keeps(patterns, module))
        if kept not in self._sessions:
            self._sessions[kept] = self._trials.session(self._precision.keeping(patterns))
        return self._sessions[kept]
