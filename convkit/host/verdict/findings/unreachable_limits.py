"""Limits that no correct conversion to a low type can meet, because rounding alone exceeds them."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from convkit.host.findings.catalog import CATALOG
from convkit.host.recipe.keys.low_precision_types import (
    BEYOND_USUAL_RANGES,
    compared_type,
    computed_type,
    rounding_error,
    usual_nrmse,
)
from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import FROM_PRECISION, limits_for, tolerance_of
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.protocol.contract import is_whole
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.metric_registry import absolute_limit

CODE = "N502"
# What a limit out of reach makes a target fail with: a search for exceptions ends with nothing in
# low precision (N207, N209), and each place where rounding happens looks like a cause.
CONSEQUENCES = frozenset(code for code, row in CATALOG.items() if CODE in row.follows)
_FOLLOWS = Remedy(f"This follows from {CODE}: correct that first.")
_FUTILE = frozenset({"N207", "N209"})

# One output in one case.
Measured = tuple[str, TensorMetrics]


def unreachable_limits(
    recipe: Recipe, target: Target, cases: Sequence[CaseVerdict], override: Tolerance | None
) -> list[Finding]:
    """Return N502, as an error, for limits below what rounding to a target's type leaves of each
    value, if these are why it fails: the errors of outputs that fail are what the type is allowed
    by default. One for each place that sets such limits, equal for all targets of the type.
    """
    low = compared_type(recipe, target)
    failing = [output for case in cases for output in case.outputs if not output.passed]
    if low is None or not failing or any(case.error is not None for case in cases):
        return []
    measured = [(case.case, output.metrics) for case in cases for output in case.outputs]
    found = _limits_below_rounding(recipe, target, measured, override, low)
    limits = {fine.output for each in found.values() for fine in each}
    if any(each.output not in limits or _is_beyond(each, usual_nrmse(low)) for each in failing):
        return []
    return [_finding(recipe, target, place, each, low) for place, each in found.items()]


def futile_searches(
    recipe: Recipe,
    target: Target,
    findings: Sequence[Finding],
    measured: Sequence[Measured],
    override: Tolerance | None,
) -> list[Finding]:
    """Return N502 for limits because of which a search left nothing in low precision, or found
    nothing: only float32 meets them. Nothing was built then, so `measured` are other targets'
    outputs.
    """
    low = compared_type(recipe, target)
    if low is None or not any(each.code in _FUTILE and each.is_error for each in findings):
        return []
    found = _limits_below_rounding(recipe, target, measured, override, low)
    return [_finding(recipe, target, place, each, low) for place, each in found.items()]


def folded(findings: Sequence[Finding], limits: Sequence[Finding]) -> list[Finding]:
    """Return a target's findings, of which some follow from limits out of reach: these have no
    remedy of their own. What was said of the same limits before a run is dropped.
    """
    if not limits:
        return list(findings)
    return [
        dataclasses.replace(each, remedy=_FOLLOWS, evidence={**each.evidence, "follows": CODE})
        if each.code in CONSEQUENCES
        else each
        for each in findings
        if each.code != CODE
    ]


def follows(finding: Finding) -> bool:
    """Return whether a finding is a mere consequence of a limit out of reach."""
    return finding.evidence.get("follows") == CODE


def out_of_reach(findings: Iterable[Finding]) -> list[Finding]:
    """Return the limits out of reach among findings, each once."""
    found = (each for each in findings if each.code == CODE and each.is_error)
    return list({str(each): each for each in found}.values())


@dataclasses.dataclass(frozen=True)
class _Fine:
    """A limit on an output, and what rounding leaves at its largest root mean square: in the
    limit's unit, or in parts of the values.
    """

    output: str
    name: str
    limit: float
    rounding: float


def _limits_below_rounding(
    recipe: Recipe,
    target: Target,
    measured: Sequence[Measured],
    override: Tolerance | None,
    low: str,
) -> dict[str, list[_Fine]]:
    """Return the limits below one rounding, by the place that sets them. A target with modules that
    were chosen to stay in float32 may meet any limit.
    """
    chosen = target.low_precision or target.quantization
    found: dict[str, list[_Fine]] = {}
    if chosen is not None and not chosen.is_auto and chosen.keep_float32:
        return found
    for output in recipe.outputs:
        place = tolerance_of(recipe, target, output.name, override).place
        place = place.removesuffix(f".{output.name}")  # `verify.outputs`
        limits = limits_for(recipe, target, output.name, override)
        fine = [
            each
            for case, metrics in measured
            if metrics.output == output.name and metrics.reference_rms > 0
            if case.partition(":")[0] not in (*BEYOND_USUAL_RANGES, "plain-rows")
            for each in _roundings(metrics, limits, low)
            if each.limit < each.rounding
        ]
        if fine and place != FROM_PRECISION and not is_whole(output.dtype):
            finest = max(fine, key=lambda each: each.rounding / each.limit)
            found.setdefault(place, []).append(finest)
    return found


def _roundings(metrics: TensorMetrics, limits: Mapping[str, float], low: str) -> list[_Fine]:
    """Return an output's limits with what one rounding of its values leaves in their unit. Errors
    are about normal: the largest of n is sqrt(2 ln n) times their root mean square.
    """
    error = rounding_error(low)
    largest = max(1.0, math.sqrt(2 * math.log(max(metrics.elements, 1))))
    of_values = error * metrics.reference_rms
    absolute = None if "rtol" in limits else absolute_limit(limits)
    allowed: dict[str, tuple[float | None, float]] = {
        "max_abs" if "max_abs" in limits else "atol": (absolute, largest * of_values),
        "max_rel": (limits.get("max_rel"), error),
        "mean_abs": (limits.get("mean_abs"), of_values / 2),
        "rms": (limits.get("rms"), of_values),
        "nrmse": (limits.get("nrmse"), error),
    }
    return [
        _Fine(metrics.output, name, limit, least)
        for name, (limit, least) in allowed.items()
        if limit is not None and limit > 0  # equality is meant
    ]


def _is_beyond(output: OutputVerdict, usual: float) -> bool:
    """Return whether an output would fail with the type's usual tolerance, too."""
    return any(problem.kind != "limit" for problem in output.problems) or not (
        output.metrics.nrmse <= usual
    )


def _of_float32_alone(recipe: Recipe, kind: str) -> dict[str, Json]:
    """Return the change that moves `verify.outputs`, which goes before the limits of a type, to
    where it holds for float32, and for another type that may need its own. Labels keep theirs.
    """
    whole = {output.name for output in recipe.outputs if is_whole(output.dtype)}
    written = {
        name: tolerance.model_dump(mode="json", exclude_unset=True)
        for name, tolerance in recipe.verify.outputs.items()
    }
    moved: dict[str, Json] = {
        f"verify.by_precision.{each}.outputs.{name}": limits
        for each in ("float32", kind)
        for name, limits in written.items()
        if name not in whole
    }
    return {"verify.outputs": {name: written[name] for name in written if name in whole}} | moved


def _finding(
    recipe: Recipe, target: Target, place: str, fine: Sequence[_Fine], low: str
) -> Finding:
    first, outputs = fine[0], ", ".join(repr(each.output) for each in fine)
    usual: dict[str, Json] = {"nrmse": usual_nrmse(low)}
    name = next(name for name, each in recipe.targets.items() if each is target)
    own = place.startswith(f"targets.{name}.")
    which = "the target's own limit" if own else f"the limit from {place}"
    message = (
        f"{which}, {first.name} {first.limit:g} on {outputs}, is out of reach of {low}: rounding"
        f" the values to it already leaves about {first.rounding:.2g}"
    )
    change: dict[str, Json] = {}
    if own:
        text = (
            f"Remove the target's limits: then {low} is allowed nrmse <= {usual['nrmse']:g}. Or"
            " write that, or what you need."
        )
    elif place == "the command line":
        text = f"Pass none, or --tolerance nrmse={usual['nrmse']:g}, what {low} is usually allowed."
    else:
        kind = computed_type(target)
        _, _, part = name.rpartition("/")
        key = f"{f'parts.{part}' if '/' in name else 'verify'}.by_precision.{kind}"
        change = {f"{key}.outputs.{each.output}": usual for each in fine}
        if not place.endswith("outputs"):
            change = {f"{key}.tolerance": usual}
        text = f"Give {kind} limits of its own. nrmse {usual['nrmse']:g} is usually allowed."
        if place == "verify.outputs":
            change = _of_float32_alone(recipe, kind) | change
            text = f"Let the limits of verify.outputs hold for float32 alone. {text}"
    return Finding(
        "N502",
        message,
        Place(tensor=first.output),
        {
            "limit": first.limit,
            "rounding": first.rounding,
            "type": low,
            "from": place,
            "outputs": [each.output for each in fine],
        },
        Remedy(text, change),
        severity="error",
    )
