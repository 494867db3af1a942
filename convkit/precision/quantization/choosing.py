"""Which modules to leave in float32, so that a quantised model meets its tolerance: `keep_float32:
auto`.
"""

import dataclasses
import math
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.cases.judged import JudgedCase
from convkit.findings.model import Finding
from convkit.metrics.limits import Limits, overshoot
from convkit.metrics.tensors import compare
from convkit.precision.naming import as_patterns
from convkit.precision.patterns import matches
from convkit.precision.quantization.quantize import quantize_file
from convkit.precision.quantization.sensitivity import Sensitivity, measure_sensitivity
from convkit.precision.quantization.switched import SwitchedModel
from convkit.precision.quantization.threads import threads
from convkit.worker.protocol import PlanRound, Quantization, TensorMetrics

Feeds = Mapping[str, np.ndarray]

MOST_ROUNDS = 3
# The joined model predicts the quantised one but for the rounding of fused kernels; a further round
# keeps more.
_GROWTH = 2


@dataclasses.dataclass(frozen=True)
class Round:
    """One quantisation, measured: what stayed in float32, every case's metrics, and the worst
    case's overshoot.

    `overshoot` is by what factor the error was too large for the limits: at most 1 where they are
    met, infinite for NaN (see `numerics.limits`).
    """

    patterns: tuple[str, ...]
    metrics: Mapping[str, tuple[TensorMetrics, ...]]
    case: str
    overshoot: float

    @property
    def met(self) -> bool:
        """True where every output of every case is within its limits."""
        return self.overshoot <= 1

    def as_protocol(self) -> PlanRound:
        """Return the round as the precision stage's result has it."""
        return PlanRound(
            self.patterns, self.overshoot if math.isfinite(self.overshoot) else None, self.case
        )


@dataclasses.dataclass(frozen=True)
class Kept:
    """What to leave in float32: the patterns of the last round, and whether the limits were met
    with them.

    `findings` are those of the last round's quantisation.
    """

    patterns: tuple[str, ...]
    met: bool
    rounds: tuple[Round, ...]
    sensitivity: Sensitivity | None
    findings: tuple[Finding, ...]


def choose_kept(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
    calibration_feeds: Sequence[Feeds] | None = None,
) -> Kept:
    """Find a small set of modules whose exception from quantisation makes the outputs meet their
    limits.

    The first round quantises all. If that breaks a limit, each module's cost is measured, and
    modules are kept, costliest first, until the joined model (see `switched`) meets the limits: a
    search by halves, on the cases that broke them. Patterns for these are then quantised and
    measured on onnxruntime, on all cases. If they do not do, one more round keeps twice as many.
    `limits` are by output. Cases in which the original itself is not finite are for verification to
    report; they are passed over.
    """
    sound = {name: case for name, case in cases.items() if _is_sound(case)}
    rounds: list[Round] = []
    costs: Sensitivity | None = None
    with tempfile.TemporaryDirectory(prefix="convkit-choosing-") as name:
        quantized = Path(name) / "quantised.onnx"

        def measure(patterns: tuple[str, ...]) -> list[Finding]:
            made = quantize_file(
                source, quantized, quantization.keeping(patterns), calibration_feeds
            )
            rounds.append(_measured(quantized, patterns, sound, limits))
            return made

        findings = measure(())
        if not rounds[0].met and not any(finding.is_error for finding in findings):
            failing = [
                case
                for name, case in sound.items()
                if not _worst(rounds[0].metrics[name], limits) <= 1
            ]
            with SwitchedModel(source, quantized) as switched:
                costs = measure_sensitivity(
                    switched, source, quantized, [case.feeds for case in failing]
                )
                ranked = [row.module for row in costs.modules]
                count = _fewest(switched, ranked, failing, limits) if ranked else 0
            while ranked and len(rounds) < MOST_ROUNDS and not rounds[-1].met:
                findings = measure(_patterns(ranked[:count], ranked))
                if count == len(ranked):
                    break
                count = min(len(ranked), count * _GROWTH)
    last = rounds[-1]
    met = last.met and not any(
        finding.is_error for finding in findings
    )  # Q101: all is kept, nothing quantised
    return Kept(last.patterns, met, tuple(rounds), costs, tuple(findings))


def _fewest(
    switched: SwitchedModel,
    ranked: Sequence[str],
    cases: Sequence[JudgedCase],
    limits: Mapping[str, Limits],
) -> int:
    """Return how many of the ranked modules must be kept, at least one: found by halves, on the
    joined model.

    The patterns that are written for them may name more; what these keep is what is tried.
    """

    def suffices(count: int) -> bool:
        on = _still_quantized(switched.modules, _patterns(ranked[:count], ranked))
        return all(
            _worst(_compared(case, switched.run(case.feeds, on)), limits) <= 1 for case in cases
        )

    low, high = 1, len(ranked)
    while low < high:
        middle = (low + high) // 2
        if suffices(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _patterns(chosen: Sequence[str], modules: Sequence[str]) -> tuple[str, ...]:
    """Return patterns for the chosen modules: general ones, unless these name all modules, and
    nothing were left.
    """
    patterns = tuple(as_patterns(chosen, modules))
    return (
        patterns if _still_quantized(modules, patterns) else tuple(path or "." for path in chosen)
    )


def _still_quantized(modules: Collection[str], patterns: Sequence[str]) -> list[str]:
    return [
        module for module in modules if not any(matches(pattern, module) for pattern in patterns)
    ]


def _measured(
    model: Path,
    patterns: tuple[str, ...],
    cases: Mapping[str, JudgedCase],
    limits: Mapping[str, Limits],
) -> Round:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if (count := threads()) is not None:
        options.intra_op_num_threads = count
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {argument.name for argument in session.get_inputs()}
    metrics: dict[str, tuple[TensorMetrics, ...]] = {}
    worst_case, worst = "", 0.0 if cases else math.inf
    for name, case in cases.items():
        feeds = {key: np.asarray(values) for key, values in case.feeds.items() if key in wanted}
        metrics[name] = _compared(case, dict(zip(names, session.run(names, feeds), strict=True)))
        share = _worst(metrics[name], limits)
        if not worst_case or not share <= worst:
            worst_case, worst = name, share
    return Round(patterns, metrics, worst_case, worst)


def _compared(case: JudgedCase, found: Mapping[str, np.ndarray]) -> tuple[TensorMetrics, ...]:
    return tuple(
        compare(name, expected, found[name], case.padding.get(name))
        for name, expected in case.expected.items()
    )


def _worst(metrics: Sequence[TensorMetrics], limits: Mapping[str, Limits]) -> float:
    """Return the largest overshoot over outputs; infinite where nothing was compared."""
    return max((overshoot(one, limits.get(one.output, {})) for one in metrics), default=math.inf)


def _is_sound(case: JudgedCase) -> bool:
    return all(
        np.isfinite(np.asarray(values, np.float32)).all() for values in case.expected.values()
    )
