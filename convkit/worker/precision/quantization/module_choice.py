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
from convkit.worker.precision.quantization.quantize import quantize_file
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
    sound_cases,
    worst,
)

Feeds = Outputs

MOST_ROUNDS = 5
# The joined model predicts the quantized one except for the rounding of fused kernels; another
# round keeps more.
_GROWTH = 2


@dataclasses.dataclass(frozen=True)
class Kept:
    """The modules to keep in float32: the last round's patterns, and whether they met the limits.

    `findings` are those of the last round's quantization. `seven_bits`: no patterns met the limits,
    but weights of seven bits do without any, because products then saturate nowhere.
    """

    patterns: tuple[str, ...]
    met: bool
    rounds: tuple[Round, ...]
    sensitivity: Sensitivity | None
    findings: tuple[Finding, ...]
    seven_bits: bool = False


def choose_kept(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    calibration_feeds: Sequence[Feeds] | None = None,
    families: Sequence[ProductFamily] = PRODUCT_FAMILIES,
) -> Kept:
    """Find a small set of modules to exclude from quantization so that the outputs meet their
    limits.

    The first round quantizes everything. If that exceeds a limit, each module's cost is measured,
    and a bisection on the failing cases finds how many of the costliest modules must be kept for
    the joined model (see `switched`) to meet the limits. The model is then quantized with patterns
    for these, and measured on all cases. If the limits are still exceeded, the next round keeps
    what surrounds them, too, and another one twice as many. `limits` are by output, for the worst
    of the families of processors. Cases in which the original itself is not finite are skipped,
    since verification reports them.
    """
    sound = sound_cases(cases)
    rounds: list[Round] = []
    costs: Sensitivity | None = None
    with tempfile.TemporaryDirectory(prefix="convkit-choosing-") as name:
        quantized = Path(name) / "quantized.onnx"

        def measure(patterns: tuple[str, ...]) -> list[Finding]:
            made = quantize_file(
                source, quantized, quantization.keeping(patterns), calibration_feeds
            )
            found = family_outputs(quantized, _feeds(sound), families)
            rounds.append(judge_round(patterns, sound, found, limits))
            return made

        findings = measure(())
        if not rounds[0].met and not any(finding.is_error for finding in findings):
            failing = _failing(sound, rounds[0], limits)
            with contextlib.ExitStack() as held:
                switched = held.enter_context(SwitchedModel(source, quantized))
                saturating = held.enter_context(SaturatingModules(quantized, families))
                feeds = [case.feeds for case in failing]
                costs = measure_sensitivity(switched, source, quantized, feeds)
                ranked = saturating.ranked(costs, feeds)
                count = _fewest(switched, saturating, ranked, failing, limits) if ranked else 0
            while ranked and len(rounds) < MOST_ROUNDS and not rounds[-1].met:
                chosen = ranked[:count]
                findings = measure(_patterns(chosen, ranked))
                is_static = quantization.quantize == "static-int8"
                around = surrounding(load_model(source), chosen) if is_static else []
                if around and not rounds[-1].met:
                    wider = [*chosen, *around]
                    known = list(dict.fromkeys([*ranked, *around]))
                    findings = measure(_patterns(wider, known))
                if count == len(ranked):
                    break
                count = min(len(ranked), count * _GROWTH)
    last = rounds[-1]
    # Q101, an error: everything is kept, so nothing is quantized.
    met = last.met and not any(finding.is_error for finding in findings)
    seven_bits = False
    if not met and "saturating-pairs" in families and not quantization.reduce_range:
        narrow = dataclasses.replace(quantization, reduce_range=True)
        with tempfile.TemporaryDirectory(prefix="convkit-choosing-") as name:
            quantized = Path(name) / "quantized.onnx"
            quantize_file(source, quantized, narrow.keeping(()), calibration_feeds)
            found = family_outputs(quantized, _feeds(sound), families)
            seven_bits = judge_round((), sound, found, limits).met
    return Kept(last.patterns, met, tuple(rounds), costs, tuple(findings), seven_bits)


def _feeds(cases: Mapping[str, JudgedCase]) -> dict[str, Feeds]:
    return {name: case.feeds for name, case in cases.items()}


def _failing(
    cases: Mapping[str, JudgedCase], judged: Round, limits: Mapping[str, Limits]
) -> list[JudgedCase]:
    """Return the cases that exceed a limit in a round; NaN exceeds every limit."""
    return [case for name, case in cases.items() if not worst(judged.metrics[name], limits) <= 1]


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
                if not worst(compared(case, found), limits) <= 1:
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
