"""Measures the cost of quantizing each module: at the outputs, in its weights, and in its own
results.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Quantization
from convkit.protocol.module_naming import as_patterns, in_words, without_covered
from convkit.protocol.numpy_dtypes import without_bits
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.graph_traversal import all_values, constant_tensor
from convkit.worker.precision.quantization.quantized_weights import (
    decibels,
    energies,
    float_names,
    quantized_weights,
)
from convkit.worker.precision.quantization.surrounding_modules import surrounding
from convkit.worker.precision.quantization.switched_quantization import JoinError, SwitchedModel

Feeds = Mapping[str, np.ndarray]

# The key of a remedy that keeps modules in float32; the host inserts the target's name.
KEPT = "target.precision.keep_float32"

_SHOWN = 10
_NAMED = 3


@dataclasses.dataclass(frozen=True)
class ModuleCost:
    """One module's part of the error; `module` is empty for the root.

    `output_error` is the error at the outputs with only this module quantized, relative to the
    outputs' magnitude (ratio of RMS values; the worst output over all cases). `share` is its
    fraction of the sum of all modules' squared errors. `weight_db` and `result_db` are
    signal-to-noise ratios in dB: of its weights, and of its results given float32 inputs; None if
    it has no weights, or if nothing is known about them.
    """

    module: str
    operators: tuple[str, ...]
    output_error: float
    share: float
    weight_db: float | None
    result_db: float | None


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """The table, costliest module first, and the total error, measured like
    `ModuleCost.output_error`. `surrounding` are the modules around the costliest.
    """

    modules: tuple[ModuleCost, ...]
    output_error: float
    surrounding: tuple[str, ...] = ()


def sensitivity(source: Path, quantized: Path, cases: Iterable[Feeds]) -> Sensitivity:
    """Measure the cost of quantizing each module on some cases.

    Needs one run per module and case on the joined float32 and quantized graphs (see `switched`),
    and the memory of both; tensors stay inside the graph.
    """
    with SwitchedModel(source, quantized) as model:
        return measure_sensitivity(model, source, quantized, list(cases))


def measure_sensitivity(
    model: SwitchedModel, source: Path, quantized: Path, cases: Sequence[Feeds]
) -> Sensitivity:
    """See `sensitivity`; uses an open joined model."""
    worst = dict.fromkeys(model.modules, 0.0)
    whole = 0.0
    errors: list[tuple[str, JoinError]] = []
    for feeds in cases:
        reference = model.run(feeds, ())
        for module in model.modules:
            worst[module] = _larger(
                worst[module], relative_error(reference, model.run(feeds, (module,)))
            )
        whole = _larger(whole, relative_error(reference, model.run(feeds, model.modules)))
        errors += [(join.module, error) for join, error in model.own_errors(feeds).items()]
    weights = weight_noise(source, quantized)
    total = sum(error * error for error in worst.values() if math.isfinite(error))
    rows = []
    for module in model.modules:
        own = [error for name, error in errors if name == module]
        operators = tuple(
            dict.fromkeys(join.operator for join in model.joins if join.module == module)
        )
        share = worst[module] ** 2 / total if total else 0.0
        rows.append(
            ModuleCost(
                module=module,
                operators=operators,
                output_error=worst[module],
                share=share if math.isfinite(share) else 1.0,
                weight_db=decibels(*weights[module]) if module in weights else None,
                result_db=(
                    decibels(sum(e.signal for e in own), sum(e.noise for e in own)) if own else None
                ),
            )
        )
    # NaN ranks as the worst.
    rows.sort(key=lambda row: -row.output_error if not math.isnan(row.output_error) else -math.inf)
    around = surrounding(load_model(source), {row.module for row in _costliest(rows)})
    return Sensitivity(tuple(rows), whole, tuple(around))


def relative_error(reference: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """Return the largest error over all float outputs: the error's RMS relative to the output's; 1
    where values decide how many rows an output has, and it has others.
    """
    largest = 0.0
    for name, expected in reference.items():
        if without_bits(expected).dtype.kind != "f" or not expected.size:
            continue
        if found[name].shape != expected.shape:
            largest = _larger(largest, 1.0)
            continue
        signal, noise = energies(expected, found[name])
        if signal == 0.0:
            ratio = 0.0 if noise == 0.0 else math.inf
        else:
            ratio = math.sqrt(noise / signal) if math.isfinite(signal) else math.nan
        largest = _larger(largest, ratio)
    return largest


def _larger(one: float, other: float) -> float:
    """Return the larger value; NaN if either is."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def weight_noise(source: Path, quantized: Path) -> dict[str, tuple[float, float]]:
    """Return the energies of each module's quantized weights and of their errors."""
    float32 = load_model(source)
    known = {value.name: constant_tensor(value) for value in all_values(float32)}
    found: dict[str, tuple[float, float]] = {}
    for weight in quantized_weights(load_model(quantized)):
        tensor = next(
            (known[name] for name in float_names(weight.name) if known.get(name) is not None), None
        )
        if tensor is None:
            continue
        expected = tensor.numpy()
        if expected.shape != weight.values.shape and expected.shape[::-1] == weight.values.shape:
            expected = expected.T
        if expected.shape == weight.values.shape:
            before = found.get(weight.module, (0.0, 0.0))
            now = energies(expected, weight.values)
            found[weight.module] = (before[0] + now[0], before[1] + now[1])
    return found


def sensitivity_finding(
    found: Sensitivity, quantization: Quantization, case: str | None = None
) -> Finding | None:
    """Return Q102 with the table; None if nothing is quantized."""
    if not found.modules:
        return None
    costly = costliest(found)
    named = [row.module or "the model's root" for row in costly[:_NAMED]]
    share = sum(row.share for row in costly)
    modules = [row.module for row in found.modules]
    patterns = as_patterns([row.module for row in costly], modules)
    kept: list[Json] = [*without_covered([*quantization.patterns, *patterns])]
    around = as_patterns(found.surrounding, list(dict.fromkeys([*modules, *found.surrounding])))
    wider: list[Json] = [*without_covered([*quantization.patterns, *patterns, *around])]
    more = f" and {len(costly) - _NAMED} more" if len(costly) > _NAMED else ""
    origin = f"{share:.0%} of that comes from {', '.join(named)}{more}"
    return Finding(
        "Q102",
        f"quantization changes the outputs by {found.output_error:.2%} of their magnitude;"
        f" {origin}",
        Place(module=costly[0].module or None, case=case),
        {
            "output_error": found.output_error,
            "origin": origin,
            "costly": [row.module for row in costly],
            "with_surrounding": wider,
            "modules": table(found.modules[:_SHOWN]),
        },
        Remedy(f"Keep {in_words(patterns)} in float32.", {KEPT: kept}),
    )


def costliest(found: Sensitivity) -> tuple[ModuleCost, ...]:
    """Return the costliest modules that together cause half of the squared error."""
    return _costliest(found.modules)


def _costliest(rows: Sequence[ModuleCost]) -> tuple[ModuleCost, ...]:
    total, chosen = 0.0, []
    for row in rows:
        chosen.append(row)
        total += row.share
        if not total < 0.5:
            break
    return tuple(chosen)


def table(rows: Sequence[ModuleCost]) -> list[Json]:
    """Return rows as JSON, with rounded figures."""

    def rounded(value: float | None) -> Json:
        if value is None or not math.isfinite(value):
            return None if value is None else str(value)
        return float(f"{value:.4g}")

    return [
        {
            "module": row.module,
            "operators": list(row.operators),
            "output_error": rounded(row.output_error),
            "share": rounded(row.share),
            "weight_db": rounded(row.weight_db),
            "result_db": rounded(row.result_db),
        }
        for row in rows
    ]
