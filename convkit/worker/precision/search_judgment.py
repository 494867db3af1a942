"""Judges the attempts of a precision search: on every case, against the limits."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.messages import PlanRound, TensorMetrics
from convkit.protocol.metrics.few_labels import for_few, most_of_few, shares_of_few
from convkit.protocol.metrics.limits import OF_SPREAD, Limits, overshoot, smallest_alike
from convkit.protocol.metrics.near_zero_outputs import meaningful
from convkit.protocol.metrics.rounding_limits import with_chance
from convkit.protocol.metrics.unusually_small import for_small
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.cases.equal_scores import with_open, with_settled
from convkit.worker.metrics.magnitudes import rms
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.metrics.tensor_metrics import as_float64

Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Round:
    """One attempt: the patterns kept in float32, every case's metrics, and the worst case.

    `overshoot` is the factor by which the worst error exceeds its limit: at most 1 if all limits
    are met, infinite for NaN and if there was no case at all (see
    `convkit.protocol.metrics.limits`). `examined` is the case to look at: the worst, or one that is
    about as bad and smaller.
    """

    patterns: tuple[str, ...]
    metrics: Mapping[str, tuple[TensorMetrics, ...]]
    case: str
    overshoot: float
    examined: str

    @property
    def met(self) -> bool:
        """True if every output of every case is within its limits."""
        return self.overshoot <= 1

    def as_protocol(self) -> PlanRound:
        """Return the round in the protocol's form."""
        factor = self.overshoot if math.isfinite(self.overshoot) else None
        return PlanRound(self.patterns, factor, self.case)


def sound_cases(cases: Mapping[str, JudgedCase]) -> dict[str, JudgedCase]:
    """Return the cases whose original has no NaN but such that is right, and numbers in each output
    of fractions; verification reports the others.
    """
    return {name: case for name, case in cases.items() if _is_sound(case)}


def _is_sound(case: JudgedCase) -> bool:
    values = [as_float64(each) for each in case.expected.values()]
    defined = case.passes_nan or not any(np.isnan(each).any() for each in values)
    return defined and all(np.isfinite(each).any() for each in values if each.size)


def judge_round(
    patterns: tuple[str, ...],
    cases: Mapping[str, JudgedCase],
    found: Iterable[tuple[str, Outputs]],
    limits: Mapping[str, Limits],
) -> Round:
    """Compare an attempt's outputs for each case, by the case's name, with the original's. Of a
    case that was run several times, the worst counts.
    """
    metrics: dict[str, tuple[TensorMetrics, ...]] = {}
    shares: dict[str, float] = {}
    for name, outputs in found:
        measured = compared(cases[name], outputs)
        share = overshoot_in(cases[name], measured, limits)
        if name not in shares or not share <= shares[name]:
            metrics[name], shares[name] = measured, share
    for name, share in _overshoots_of_few(cases, metrics, limits):
        shares[name] = max(shares[name], share)
    case = max(shares, key=lambda name: shares[name], default="")
    examined = smallest_alike(shares, {name: elements(cases[name]) for name in shares})
    return Round(patterns, metrics, case, shares.get(case, math.inf), examined or "")


def _overshoots_of_few(
    cases: Mapping[str, JudgedCase],
    metrics: Mapping[str, tuple[TensorMetrics, ...]],
    limits: Mapping[str, Limits],
) -> Iterator[tuple[str, float]]:
    """Yield by what factor outputs' labels differ too often in all cases that have few of them, and
    the case in which most do.
    """
    together: dict[str, dict[str, TensorMetrics]] = {}
    for name, found in metrics.items():
        for each in found:
            agreement = limits.get(each.output, {}).get("agreement", 0.0)
            if each.output in cases[name].derived and 0 < agreement < 1 and each.elements:
                together.setdefault(each.output, {})[name] = each
    for output, measured in together.items():
        differing, count = shares_of_few(measured.values()).get(output, (0.0, 1))
        worst_case = min(measured, key=lambda name: measured[name].agreement)
        yield worst_case, differing / most_of_few(limits[output]["agreement"], count)


def elements(case: JudgedCase) -> int:
    """Return how many elements the inputs have: about how long the case takes."""
    return sum(each.size for each in case.feeds.values())


def compared(case: JudgedCase, found: Outputs) -> tuple[TensorMetrics, ...]:
    """Return the metrics of every output found, in the original's order. Programs may compute
    whole numbers and bools in other types than the contract's, as sessions do not.
    """
    typed = {
        name: array.astype(case.expected[name].dtype)
        if name in case.expected and case.expected[name].dtype.kind in "iub"
        else array
        for name, array in found.items()
    }
    settled = with_settled(typed, case.expected, case.scored)
    judged = with_open(settled, case.expected, case.are_open)
    return compare_outputs(
        case.contract,
        case.expected,
        judged,
        case.padding.get,
        nan_agrees=case.passes_nan,
        steps=case.steps,
    )


def outputs_of(run: Callable[[], Outputs]) -> Outputs:
    """Return a run's outputs; none, which no limit accepts, if a model refuses its own values once
    they are rounded: an index that leaves its table, a size that grows beyond all memory.
    """
    try:
        return run()
    except Exception:  # noqa: BLE001 - each runtime has errors of its own
        return {}


def overshoot_in(
    case: JudgedCase, measured: Sequence[TensorMetrics], limits: Mapping[str, Limits]
) -> float:
    """Return the largest overshoot over outputs in a case, as `worst` does, by the limits that
    apply there, as verdicts do.
    """
    return worst(measured, {each.output: _limits_of(each, case, limits) for each in measured})


def _limits_of(metrics: TensorMetrics, case: JudgedCase, limits: Mapping[str, Limits]) -> Limits:
    given = limits.get(metrics.output, {})
    if case.only_finite or not given:
        return {}
    usual = case.usual.get(metrics.output, 0.0)
    given = for_small(given, metrics.elements, metrics.reference_rms, usual)
    if metrics.output in case.derived:
        given = with_chance(dict(for_few(given, metrics, {})), metrics)
    return meaningful(dict(given), metrics, case.largest)


def telling_limits(
    limits: Mapping[str, Limits], cases: Mapping[str, JudgedCase]
) -> dict[str, Limits]:
    """Return limits that a constant does not meet, as verdicts do: an error relative to the values'
    RMS (nrmse) is at most a part of their spread, in a case or over all of them.
    """
    found = dict(limits)
    for output, given in limits.items():
        values = [as_float64(each.expected[output]) for each in cases.values()]
        spread = max((*map(_spread, values), _spread_over(values)), default=math.inf)
        if "nrmse" in given and 0 < spread <= given["nrmse"]:
            found[output] = {**given, "nrmse": OF_SPREAD * spread}
    return found


def _spread(values: np.ndarray) -> float:
    """Return the standard deviation in parts of the RMS; 0 for single values."""
    values = values[np.isfinite(values)]
    size = rms(values)
    return float(values.std()) / size if size > 0 else 0.0


def _spread_over(cases: Sequence[np.ndarray]) -> float:
    """Return the spread of all cases' values: each may have a single one."""
    cases = [each[np.isfinite(each)] for each in cases]
    count = sum(each.size for each in cases)
    square = sum(float(np.square(each).sum()) for each in cases) / max(count, 1)
    mean = sum(float(each.sum()) for each in cases) / max(count, 1)
    return math.sqrt(max(square - mean * mean, 0.0) / square) if square > 0 else 0.0


def worst(metrics: Sequence[TensorMetrics], limits: Mapping[str, Limits]) -> float:
    """Return the largest overshoot over outputs; infinite if there are none. An output that has no
    elements in this case, as differences along an axis of one, has nothing to exceed.
    """
    found = (
        overshoot(one, limits.get(one.output, {}))
        for one in metrics
        if one.elements or one.mismatch is not None
    )
    return max(found, default=0.0 if metrics else math.inf)
