"""Chooses modules to keep in float32 so that a quantized model meets its tolerance: `keep_float32:
auto`.
"""

import dataclasses
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.cases.judged import JudgedCase
from convkit.findings.model import Finding
from convkit.metrics.limits import Limits
from convkit.models.graph.exchange import run_outputs
from convkit.precision.judging import Outputs, Round, compared, judge_round, sound_cases, worst
from convkit.precision.naming import as_patterns
from convkit.precision.patterns import matches
from convkit.precision.quantization.quantize import quantize_file
from convkit.precision.quantization.sensitivity import Sensitivity, measure_sensitivity
from convkit.precision.quantization.switched import SwitchedModel
from convkit.precision.threads import threads
from convkit.worker.custom_ops import register_libraries
from convkit.worker.protocol import Quantization

Feeds = Mapping[str, np.ndarray]

MOST_ROUNDS = 3
# The joined model predicts the quantized one except for the rounding of fused kernels; another
# round keeps more.
_GROWTH = 2


@dataclasses.dataclass(frozen=True)
class Kept:
    """The modules to keep in float32: the last round's patterns, and whether they met the limits.

    `findings` are those of the last round's quantization.
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
    """Find a small set of modules to exclude from quantization so that the outputs meet their
    limits.

    The first round quantizes everything. If that exceeds a limit, each module's cost is measured,
    and a bisection on the failing cases finds how many of the costliest modules must be kept for
    the joined model (see `switched`) to meet the limits. The model is then quantized with patterns
    for these, and measured with onnxruntime on all cases. If the limits are still exceeded, another
    round keeps twice as many. `limits` are by output. Cases in which the original itself is not
    finite are skipped, since verification reports them.
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
            rounds.append(judge_round(patterns, sound, _run(quantized, sound), limits))
            return made

        findings = measure(())
        if not rounds[0].met and not any(finding.is_error for finding in findings):
            failing = _failing(sound, rounds[0], limits)
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
    # Q101, an error: everything is kept, so nothing is quantized.
    met = last.met and not any(finding.is_error for finding in findings)
    return Kept(last.patterns, met, tuple(rounds), costs, tuple(findings))


def _failing(
    cases: Mapping[str, JudgedCase], judged: Round, limits: Mapping[str, Limits]
) -> list[JudgedCase]:
    """Return the cases that exceed a limit in a round; NaN exceeds every limit."""
    return [case for name, case in cases.items() if not worst(judged.metrics[name], limits) <= 1]


def _fewest(
    switched: SwitchedModel,
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
        return all(
            worst(compared(case, switched.run(case.feeds, on)), limits) <= 1 for case in cases
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


def _run(model: Path, cases: Mapping[str, JudgedCase]) -> Iterator[tuple[str, Outputs]]:
    """Yield each case's outputs from onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if (count := threads()) is not None:
        options.intra_op_num_threads = count
    register_libraries(options)
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {argument.name for argument in session.get_inputs()}
    for name, case in cases.items():
        feeds = {key: np.asarray(values) for key, values in case.feeds.items() if key in wanted}
        yield name, dict(zip(names, run_outputs(session, names, feeds), strict=True))
