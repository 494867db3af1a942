"""Limits for a case in which float32's rounding is all that differs, as float64 has proven."""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.host.recipe.keys.low_precision_types import (
    compared_type,
    is_calibrated_for,
    rounding_of,
)
from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import follows_from_type, limits_for
from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.contract import is_whole
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import RoundedOutput, TensorMetrics, is_of_plain_rows
from convkit.protocol.metrics.few_labels import for_few
from convkit.protocol.metrics.limit_kinds import largest_in_units
from convkit.protocol.metrics.limits import problems
from convkit.protocol.metrics.near_zero_outputs import meaningful
from convkit.protocol.metrics.rounding_limits import fitted, with_chance
from convkit.protocol.metrics.unusually_small import for_small

# Says that a case is judged so.
RESOLVED = "N508"
# Two correct float32 results each differ from float64's, and each by luck less than another.
_TIMES = 4
# In rows that are equal throughout, a normalization divides by its epsilon what a kernel's order of
# sums leaves of their variance: more than any other order shows. This much of an output's magnitude
# is allowed; a lost epsilon costs all of it.
_OF_PLAIN_ROWS = 0.01

# By case and output, in units in the last place of float32 at the scale of each element.
Resolution = Mapping[tuple[str, str], float]


def resolution(findings: Sequence[Finding]) -> Resolution:
    """Return how far float32 is from float64, by case and output."""
    found: dict[tuple[str, str], float] = {}
    for finding in findings:
        resolved = finding.evidence.get("units")
        if finding.code == RESOLVED and finding.place.case and isinstance(resolved, dict):
            for output, distance in resolved.items():
                if isinstance(distance, int | float):
                    found[finding.place.case, output] = float(distance)
    return found


@dataclasses.dataclass(frozen=True)
class ResolutionLimits:
    """What a target's outputs are judged by. `largest` are the outputs' largest usual values,
    `rounded` what rounding to its type makes of the original, `usual` how large outputs are in most
    cases, `few` how many of few labels differ (`shares_of_few`).
    """

    recipe: Recipe
    target: Target
    override: Tolerance | None
    largest: Mapping[str, float]
    resolved: Resolution
    rounded: Sequence[RoundedOutput] = ()
    usual: Mapping[str, float] = dataclasses.field(default_factory=dict)
    few: Mapping[str, tuple[float, int]] = dataclasses.field(default_factory=dict)

    def of(self, metrics: TensorMetrics, case: str) -> dict[str, float]:
        """Return the limits on an output in a case. Where they are not met and rounding explains
        the case, there is none but what float32 resolves. Labels keep theirs. Beyond the ranges
        that a quantization was calibrated for, its type allows any error; so does a low precision
        where rows are equal throughout, since a normalization divides by what rounding leaves of
        their variance, and labels follow. What is not finite fails in any case.
        """
        if is_of_plain_rows(case) and compared_type(self.recipe, self.target) is not None:
            return {}
        is_of_type = follows_from_type(self.recipe, self.target, metrics.output, self.override)
        if is_of_type and not is_calibrated_for(self.target, case):
            return {}
        limits = self.of_output(metrics.output)
        if is_of_type:
            alone, together = with_chance(limits, metrics), for_few(limits, metrics, self.few)
            limits = alone if not problems(metrics, alone) else dict(together)
        usual = self.usual.get(metrics.output, 0.0)
        limits = dict(for_small(limits, metrics.elements, metrics.reference_rms, usual))
        limits = meaningful(limits, metrics, self.largest)
        distance = self.resolved.get((case, metrics.output))
        if not problems(metrics, limits):
            return limits
        is_plain = is_of_plain_rows(case) and any(name == case for name, _ in self.resolved)
        if "agreement" in limits:
            return {} if is_plain else limits
        if distance is None:
            return limits
        by_units = {
            "max_abs": limits.get("max_abs", 0.0),
            "ulps": max(_TIMES * distance, limits.get("ulps", 0.0)),
        }
        return {"nrmse": _OF_PLAIN_ROWS} if is_plain and problems(metrics, by_units) else by_units

    def of_output(self, output: str) -> dict[str, float]:
        """Return the limits on an output in all cases: its own, or what its type makes of the
        original.
        """
        limits = limits_for(self.recipe, self.target, output, self.override)
        if not follows_from_type(self.recipe, self.target, output, self.override):
            return limits
        fractions = {spec.name for spec in self.recipe.outputs if not is_whole(spec.dtype)}
        return fitted(limits, rounding_of(self.target), output, self.rounded, fractions)


def explains(findings: Sequence[Finding], cases: Sequence[CaseVerdict]) -> bool:
    """Return whether failing cases are within what float32 resolves in all outputs that failed."""
    known = resolution(findings)
    plain = {case for case, _ in known if is_of_plain_rows(case)}
    return all(
        largest_in_units(output.metrics) <= _TIMES * known.get((case.case, output.output), -1.0)
        or (case.case in plain and _is_near_in_plain_rows(output.metrics, output.limits))
        for case in cases
        for output in case.outputs
        if not output.passed
    )


def _is_near_in_plain_rows(metrics: TensorMetrics, limits: Mapping[str, float]) -> bool:
    return "agreement" in limits or metrics.nrmse <= _OF_PLAIN_ROWS
