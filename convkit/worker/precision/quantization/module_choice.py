"""Chooses modules to keep in float32 so that a quantized model meets its tolerance: `keep_float32:
auto`.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import PRODUCT_FAMILIES, ProductFamily, Quantization
from convkit.protocol.metrics.limits import Limits
from convkit.protocol.module_naming import as_patterns
from convkit.protocol.module_patterns import matches
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.precision.quantization.module_sensitivity import (
    Sensitivity,
    measure_sensitivity,
)
from convkit.worker.precision.quantization.quantize import equalized_source, quantize_file
from convkit.worker.precision.quantization.saturating_modules import (
    SaturatingModules,
    family_outputs,
)
from convkit.worker.precision.quantization.surrounding_modules import surrounding
from convkit.worker.precision.quantization.switched_quantization import SwitchedModel
from convkit.worker.precision.search_judgment import (
    Outputs,
    Round,
    compared,
    judge_round,
    overshoot_in,
    sound_cases,
)

Feeds = Outputs

MOST_ROUNDS = 5
# The joined model predicts the quantized one except for the rounding of fused kernels; another
# round keeps more.
_GROWTH = 2
# An overshoot of less than this share of the other is better by more than chance.
_CLEARLY = 0.8
# The model with everything quantized, and with what the last round quantized of it.
_WHOLE, _PART = "quantized.onnx", "partly-quantized.onnx"


@dataclasses.dataclass(frozen=True)
class Kept:
    """The modules to keep in float32: the last round's patterns, and whether they met the limits.

    `findings` are those of the last round's quantization. `seven_bits`: no patterns met the limits,
    but weights of seven bits do without any, because products then saturate nowhere; if that is
    what is chosen, the limits are met by it. `equalized`:
    all but the first round had channels that are scaled alike.
    """

    patterns: tuple[str, ...]
    met: bool
    rounds: tuple[Round, ...]
    sensitivity: Sensitivity | None
    findings: tuple[Finding, ...]
    seven_bits: bool = False
    equalized: bool = False


def choose_kept(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    calibration_feeds: Sequence[Feeds] | None = None,
    families: Sequence[ProductFamily] = PRODUCT_FAMILIES,
    *,
    narrows: bool = False,
) -> Kept:
    """Find a small set of modules to exclude from quantization so that the outputs meet their
    limits.

    The first round quantizes everything. If that exceeds a limit, and channels can be made alike
    (`equalize` None), another one does with these, and the others go on from it if it is clearly
    better. Then each module's cost is measured, and a bisection on the failing cases finds how many
    of the costliest modules must be kept for the joined model (see `switched`) to meet the limits.
    The model is then quantized with patterns for these, and measured on all cases. If the limits
    are still exceeded, the next round keeps what surrounds them, too; then the cases that fail now
    are added, and all is measured again, or twice as many are kept. `limits` are by output, for the
    worst of the families of processors. Cases in which the original itself is not finite are
    skipped, since verification reports them. If nothing meets the limits but weights of seven bits,
    these are chosen if `narrows`, and otherwise noted.
    """
    sound = sound_cases(cases)
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="convkit-choosing-")))
        plain = dataclasses.replace(quantization, equalize=False)
        search = _Search(plain, sound, limits, calibration_feeds, families, source, folder)
        if quantization.equalize:
            search.source = held.enter_context(
                equalized_source(source, quantization, calibration_feeds)
            )[0]
        search.measure(())
        equalized = bool(quantization.equalize)
        if quantization.equalize is None and not search.is_over:
            even, _ = held.enter_context(equalized_source(source, quantization, calibration_feeds))
            if even != source:
                search, equalized = search.better_with(even)
        costs = None if search.is_over else search.keep_costliest()
        last = search.rounds[-1]
        met = last.met and not search.nothing_quantized
        seven_bits = False
        if not met and "saturating-pairs" in families and not quantization.reduce_range:
            narrow = dataclasses.replace(plain, reduce_range=True)
            again = dataclasses.replace(search, quantization=narrow, rounds=[], findings=[])
            again.measure(())
            seven_bits = again.rounds[0].met and not again.nothing_quantized
            if seven_bits and narrows:
                again.rounds = [*search.rounds, *again.rounds]
                search, met, last = again, True, again.rounds[-1]
    rounds, findings = tuple(search.rounds), tuple(search.findings)
    return Kept(last.patterns, met, rounds, costs, findings, seven_bits, equalized)


@dataclasses.dataclass
class _Search:
    """Rounds of quantizing a graph; `findings` are those of the last."""

    quantization: Quantization
    cases: Mapping[str, JudgedCase]
    limits: Mapping[str, Limits]
    calibration_feeds: Sequence[Feeds] | None
    families: Sequence[ProductFamily]
    source: Path
    folder: Path
    rounds: list[Round] = dataclasses.field(default_factory=list)
    findings: list[Finding] = dataclasses.field(default_factory=list)

    @property
    def nothing_quantized(self) -> bool:
        """True if the last round left nothing to quantize (Q101, an error)."""
        return any(finding.is_error for finding in self.findings)

    @property
    def is_over(self) -> bool:
        """True if the last round meets the limits, or keeping more makes no difference."""
        return self.rounds[-1].met or self.nothing_quantized

    def measure(self, patterns: tuple[str, ...]) -> None:
        """Make another round, which keeps what patterns match."""
        kept = self.quantization.keeping(patterns)
        quantized = self.folder / (_PART if patterns else _WHOLE)
        self.findings = quantize_file(self.source, quantized, kept, self.calibration_feeds)
        found = family_outputs(quantized, _feeds(self.cases), self.families)
        self.rounds.append(judge_round(patterns, self.cases, found, self.limits))

    def better_with(self, even: Path) -> tuple["_Search", bool]:
        """Return the search to go on with: in a graph with equalized channels, if that is clearly
        better with everything quantized, and otherwise this one.
        """
        folder = self.folder / "equalized"
        folder.mkdir()
        other = dataclasses.replace(self, source=even, folder=folder, rounds=list(self.rounds))
        other.measure(())
        clearly = other.rounds[-1].overshoot < _CLEARLY * self.rounds[-1].overshoot
        return (other, True) if clearly else (self, False)

    def keep_costliest(self) -> Sensitivity:
        """Make rounds that keep more and more of the costliest modules; return what each costs."""
        failing = _failing(self.cases, self.rounds[-1], self.limits)
        whole = self.folder / _WHOLE
        most = len(self.rounds) - 1 + MOST_ROUNDS
        with contextlib.ExitStack() as held:
            switched = held.enter_context(SwitchedModel(self.source, whole))
            saturating = held.enter_context(SaturatingModules(whole, self.families))

            def measured() -> tuple[Sensitivity, list[str], int]:
                feeds = list(_feeds(failing).values())
                costs = measure_sensitivity(switched, self.source, whole, feeds)
                ranked = saturating.ranked(costs, feeds)
                fewest = _fewest(switched, saturating, ranked, [*failing.values()], self.limits)
                return costs, ranked, fewest

            costs, ranked, count = measured()
            while ranked and len(self.rounds) < most:
                chosen = ranked[:count]
                self._keep(chosen, ranked)
                if self.rounds[-1].met or count == len(ranked):
                    break
                others = _failing(self.cases, self.rounds[-1], self.limits)
                if others.keys() - failing.keys():
                    failing |= others
                    costs, ranked, count = measured()
                if set(chosen) >= set(ranked[:count]):
                    count = min(len(ranked), len(chosen) * _GROWTH)
        return costs

    def _keep(self, chosen: Sequence[str], ranked: Sequence[str]) -> None:
        """Make a round that keeps some modules, and if it takes that, one that keeps what surrounds
        them, too.
        """
        self.measure(_patterns(chosen, ranked))
        is_static = self.quantization.quantize == "static-int8"
        around = surrounding(load_model(self.source), chosen) if is_static else []
        if around and not self.rounds[-1].met:
            wider = [*chosen, *around]
            self.measure(_patterns(wider, list(dict.fromkeys([*ranked, *around]))))


def _feeds(cases: Mapping[str, JudgedCase]) -> dict[str, Feeds]:
    return {name: case.feeds for name, case in cases.items()}


def _failing(
    cases: Mapping[str, JudgedCase], judged: Round, limits: Mapping[str, Limits]
) -> dict[str, JudgedCase]:
    """Return the cases that exceed a limit in a round; NaN exceeds every limit."""
    return {
        name: case
        for name, case in cases.items()
        if not overshoot_in(case, judged.metrics[name], limits) <= 1
    }


def _fewest(
    switched: SwitchedModel,
    saturating: SaturatingModules,
    ranked: Sequence[str],
    cases: Sequence[JudgedCase],
    limits: Mapping[str, Limits],
) -> int:
    """Return how many of the ranked modules must be kept, at least one, by bisection on the joined
    model.

    Patterns may match more modules than requested; each attempt keeps everything that they match.
    """

    def suffices(count: int) -> bool:
        on = _still_quantized(switched.modules, _patterns(ranked[:count], ranked))
        for case in cases:
            outputs = switched.run(case.feeds, on)
            for found in (outputs, *saturating.added_to(outputs, case.feeds, on)):
                if not overshoot_in(case, compared(case, found), limits) <= 1:
                    return False
        return True

    low, high = 1, len(ranked)
    while low < high:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _patterns(chosen: Sequence[str], modules: Sequence[str]) -> tuple[str, ...]:
    """Return patterns for the chosen modules: general ones, unless these match all modules and
    would leave nothing to quantize.
    """
    patterns = tuple(as_patterns(chosen, modules))
    return (
        patterns if _still_quantized(modules, patterns) else tuple(path or "." for path in chosen)
    )


def _still_quantized(modules: Collection[str], patterns: Sequence[str]) -> list[str]:
    return [
        module for module in modules if not any(matches(pattern, module) for pattern in patterns)
    ]
