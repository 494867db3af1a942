"""Whether limits mean anything for the values that were met: larger than the output itself, or
below its rounding.
"""

import math
from collections.abc import Mapping, Sequence

from convkit.host.recipe.keys.low_precision_types import compared_type
from convkit.host.recipe.keys.recipe import Recipe, Target
from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import is_of_plain_rows
from convkit.protocol.metrics.metric_registry import absolute_limit

# Bits of a significand, with the hidden one.
_PRECISION = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
# Two sums of the same numbers in different orders differ by more units in the last place than this.
_FEW_UNITS = 2
# Keys with which a limit follows the output's magnitude.
_RELATIVE = frozenset({"rtol", "ulps"})
# Limits in the unit of the output's values that a model which returns nothing but zeros may meet.
_ERRORS = ("max_abs", "atol", "rms", "mean_abs")
# Limits in parts of the values: from 1 on, such a model meets them.
_PARTS = ("nrmse", "max_rel", "rtol")
# Limits on an average, which rounding each value alone exceeds.
_AVERAGES = ("rms", "mean_abs", "nrmse")


def limit_findings(recipe: Recipe, target: Target, cases: Sequence[CaseVerdict]) -> list[Finding]:
    """Return N501 and N502 for limits that the values of the original's outputs make no sense of.

    The largest case counts: the largest rms, the largest magnitude, but not those of `plain-rows`,
    which has values far from all others.
    """
    findings = []
    low = compared_type(recipe, target)
    for spec in recipe.outputs:
        met = [
            output
            for case in cases
            for output in case.outputs
            if output.output == spec.name and not is_of_plain_rows(case.case)
        ]
        known = [each.metrics for each in met if math.isfinite(each.metrics.reference_rms)]
        if not known:
            continue
        # Fewer count near zero, and wider ones where few values happen to be small.
        limits = max(
            (each.limits for each in met), key=lambda one: (len(one), -one.get("nrmse", 0.0))
        )
        rms = max(metrics.reference_rms for metrics in known)
        magnitude = max(metrics.reference_max for metrics in known)
        if (finding := _too_wide(spec.name, limits, rms)) is not None:
            findings.append(finding)
        if spec.dtype not in _PRECISION:
            continue
        dtype = low if low in _PRECISION else spec.dtype
        narrow = _too_narrow(spec.name, limits, magnitude, dtype)
        narrow = narrow or _below_rounding(spec.name, limits, rms, dtype)
        findings += [narrow] if narrow is not None else []
    return findings


def vacuous_limits(limits: Mapping[str, float], rms: float) -> set[str]:
    """Return the limits, of those on an output whose values have this rms, that all zeros meet."""
    wide = {name for name in _ERRORS if name in limits and limits[name] >= rms > 0}
    wide |= {name for name in _PARTS if name in limits and limits[name] >= 1}
    # Zeros have a cosine of 0, and ulps only ever widens a max_abs that is given.
    wide |= {name for name, limit in limits.items() if name == "cosine" and limit <= 0}
    return wide | ({"ulps"} & limits.keys() if "max_abs" in wide else set())


def _too_wide(output: str, limits: Mapping[str, float], rms: float) -> Finding | None:
    wide = {name: limits[name] for name in _ERRORS if name in limits and limits[name] >= rms > 0}
    parts = {name: limits[name] for name in _PARTS if name in limits and limits[name] >= 1}
    rest = limits.keys() - vacuous_limits(limits, rms)
    if parts and not wide and not rest and rms > 0:
        return _all_of_it(output, *next(iter(parts.items())))
    if not wide:
        return None
    name, limit = next(iter(wide.items()))
    passes = "" if rest else ": an output of all zeros might pass"
    return Finding(
        "N501",
        f"the limit {name} {limit:g} on {output!r} is larger than the output itself, whose rms is"
        f" {rms:.3g}{passes}",
        Place(tensor=output),
        {"limit": limit, "rms": rms, "zeros_pass": not rest},
        Remedy(f"Set {name} to a small part of the output's rms, such as {rms / 100:.1g}."),
    )


def _all_of_it(output: str, name: str, limit: float) -> Finding:
    return Finding(
        "N501",
        f"the limit {name} {limit:g} on {output!r} allows errors as large as the output itself: an"
        " output of all zeros passes",
        Place(tensor=output),
        {"limit": limit, "zeros_pass": True},
        Remedy(f"Set {name} to a small part, such as 0.01."),
    )


def _below_rounding(
    output: str, limits: Mapping[str, float], rms: float, dtype: str
) -> Finding | None:
    """Return N502 for a limit on an average that rounding every value once already exceeds."""
    rounding = 2.0 ** -(_PRECISION[dtype] + 1)  # about a quarter of a unit in the last place
    for name in _AVERAGES:
        least = rounding if name == "nrmse" else rounding * rms
        if name in limits and 0 < limits[name] < least:
            return Finding(
                "N502",
                f"the limit {name} {limits[name]:g} on {output!r} is below what rounding each value"
                f" to {dtype} leaves ({least:.2g}): correct results may fail",
                Place(tensor=output),
                {"limit": limits[name], "unit": least, "type": dtype},
                Remedy(f"Allow at least {10 * least:.1g}."),
            )
    return None


def _too_narrow(
    output: str, limits: Mapping[str, float], magnitude: float, dtype: str
) -> Finding | None:
    limit = absolute_limit(limits)
    if limit is None or limit == 0 or not _RELATIVE.isdisjoint(limits) or not magnitude > 0:
        return None
    unit = 2.0 ** (math.floor(math.log2(magnitude)) + 1 - _PRECISION[dtype])
    if limit >= _FEW_UNITS * unit:
        return None
    return Finding(
        "N502",
        f"the limit of {limit:g} on {output!r} is below {_FEW_UNITS} units in the last place of"
        f" {dtype} at its magnitude of {magnitude:.3g} ({unit:.2g} each): correct results may fail",
        Place(tensor=output),
        {"limit": limit, "unit": unit, "magnitude": magnitude, "type": dtype},
        Remedy(f"Allow at least {10 * unit:.1g}, or a part of the values: rtol with atol."),
    )
