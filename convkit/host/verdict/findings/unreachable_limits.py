"""Limits that no correct conversion to a low type can meet, because rounding alone exceeds them."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from convkit.host.findings.catalog import CATALOG
from convkit.host.findings.consequences import following
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
from convkit.protocol.messages import RoundedOutput, TensorMetrics
from convkit.protocol.metrics.limits import breaches
from convkit.protocol.metrics.metric_registry import absolute_limit
from convkit.protocol.metrics.rounding_limits import MOST_ROUNDING, ROOM

CODE = "N502"
_NOTHING_LOW = "N207"
_FUTILE = frozenset({_NOTHING_LOW, "N209"})

_ROUNDED = dict.fromkeys(("float16", "bfloat16"), "weights, inputs and outputs") | dict.fromkeys(
    ("int8", "int4"), "the weights of its products"
)
# Limits that were not written for the type of a target.
_INHERITED = frozenset({"verify.tolerance", "verify.outputs", FROM_PRECISION})

# One output in one case.
Measured = tuple[str, TensorMetrics]


def unreachable_limits(
    recipe: Recipe,
    target: Target,
    cases: Sequence[CaseVerdict],
    override: Tolerance | None,
    rounded: Sequence[RoundedOutput] = (),
) -> list[Finding]:
    """Return N502 for limits below what rounding to a target's type leaves of each value, if these
    are why it fails: the errors of outputs that fail are what the type is allowed by default, or at
    most twice what it makes of the original. One for each place that sets such limits, equal for
    all targets of the type.

    It is an error if one rounding of each output that fails is too much already. `rounded` is what
    the original itself gives with weights and inputs rounded: limits that only this exceeds are a
    warning, because modules kept in float32 may meet them.
    """
    low = compared_type(recipe, target)
    failing = [output for case in cases for output in case.outputs if not output.passed]
    if low is None or not failing or any(case.error is not None for case in cases):
        return []
    measured = [(case.case, output.metrics) for case in cases for output in case.outputs]
    originals = [] if _is_searched(target) else _of_type(rounded, low)
    found = _limits_below_rounding(recipe, target, measured, override, low, originals)
    limits = {fine.output for each in found.values() for fine in each}
    if any(
        each.output not in limits or _is_beyond(each, _allowed(low, [each.output], originals))
        for each in failing
    ):
        return []
    certain = {
        place: once for place, each in found.items() if (once := [f for f in each if f.once])
    }
    leads = {output.output for output in failing} <= {f.output for f in chain(*certain.values())}
    return [
        _finding(recipe, target, place, each, low, originals, leads=leads)
        for place, each in (certain if leads else found).items()
    ]


def futile_searches(
    recipe: Recipe,
    target: Target,
    findings: Sequence[Finding],
    measured: Sequence[Measured],
    override: Tolerance | None,
    rounded: Sequence[RoundedOutput] = (),
) -> list[Finding]:
    """Return N502 for limits because of which a search left nothing in low precision, or found
    nothing: only float32 meets them. Nothing was built then, so `measured` are other targets'
    outputs, to which the original's own, `rounded`, are added.

    What the original exceeds counts only if everything in float32 was seen to meet the limit; and
    the number to write is the type's usual one, which a search may meet.
    """
    low = compared_type(recipe, target)
    futile = {each.code for each in findings if each.code in _FUTILE and each.is_error}
    if low is None or not futile:
        return []
    originals = _of_type(rounded, low)
    measured = [*measured, *((each.case, each.metrics) for each in originals)]
    whole = originals if _NOTHING_LOW in futile else []
    found = _limits_below_rounding(recipe, target, measured, override, low, whole)
    found.pop(FROM_PRECISION, None)
    return [
        _finding(recipe, target, place, each, low, (), leads=True) for place, each in found.items()
    ]


def folded(findings: Sequence[Finding], limits: Sequence[Finding]) -> list[Finding]:
    """Return a target's findings, of which some follow from limits out of reach: these have no
    remedy of their own. What was said of the same limits before a run is dropped.
    """
    if not limits:
        return list(findings)
    return [
        following(each, CODE) if _is_consequence(each.code) else each
        for each in findings
        if each.code != CODE
    ]


def _is_consequence(code: str) -> bool:
    """Return whether a limit out of reach may be what makes a target fail with this: a search for
    exceptions ends with nothing in low precision (N207, N209), and each place where rounding
    happens looks like a cause.
    """
    return code in CATALOG and CODE in CATALOG[code].follows


def out_of_reach(findings: Iterable[Finding]) -> list[Finding]:
    """Return the limits out of reach among findings, each once."""
    found = (each for each in findings if each.code == CODE and each.is_error)
    return list({str(each): each for each in found}.values())


def _of_type(rounded: Sequence[RoundedOutput], low: str) -> list[RoundedOutput]:
    """Return what rounding to a type makes of the original. Where little is left of an output, the
    type is wrong for it, and no limit is right.
    """
    most = max(MOST_ROUNDING, usual_nrmse(low))
    return [
        each
        for each in rounded
        if each.type == low and not each.activations and each.metrics.nrmse <= most
    ]


def _is_searched(target: Target) -> bool:
    """Say whether a search chose what of a target stays in float32: it isn't rounded as a whole."""
    chosen = target.low_precision or target.quantization
    return chosen is not None and chosen.is_auto


@dataclasses.dataclass(frozen=True)
class _Fine:
    """A limit on an output, and what rounding leaves at its largest root mean square: in the
    limit's unit, or in parts of the values. `case`: where the original itself, rounded, gave that;
    None if it is what rounding the output once leaves. `once`: that much is above the limit.
    """

    output: str
    name: str
    limit: float
    rounding: float
    case: str | None = None
    once: bool = True


def _limits_below_rounding(
    recipe: Recipe,
    target: Target,
    measured: Sequence[Measured],
    override: Tolerance | None,
    low: str,
    originals: Sequence[RoundedOutput],
) -> dict[str, list[_Fine]]:
    """Return the limits below what rounding leaves, by the place that sets them. A target with
    modules that were chosen to stay in float32 may meet any limit.

    What one rounding of an output leaves is below any conversion. What the original gives, rounded
    as a whole, is not: a limit written for this very type or target may count on float32 in places.
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
        if place == FROM_PRECISION:
            fine = []
        if fine or place in _INHERITED:
            own = (each for each in originals if each.metrics.output == output.name)
            fine = [f for each in own for f in _exceeded(each, limits, once=bool(fine))] or fine
        if fine and not is_whole(output.dtype):
            finest = max(fine, key=lambda each: each.rounding / each.limit)
            found.setdefault(place, []).append(finest)
    return found


def _exceeded(rounded: RoundedOutput, limits: Mapping[str, float], *, once: bool) -> list[_Fine]:
    """Return the limits that the original itself exceeds, rounded."""
    return [
        _Fine(rounded.metrics.output, each.limit, each.allowed, each.found, rounded.case, once)
        for each in breaches(rounded.metrics, limits)
        if each.limit is not None and each.found is not None and each.allowed
    ]


def _allowed(low: str, outputs: Sequence[str], originals: Sequence[RoundedOutput]) -> float:
    """Return the error to allow outputs in a type: its usual one, or twice what rounding makes of
    the original if that is more, to one digit.
    """
    own = [each.metrics.nrmse for each in originals if each.metrics.output in outputs]
    return max(usual_nrmse(low), float(f"{ROOM * max(own, default=0.0):.1g}"))


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
    recipe: Recipe,
    target: Target,
    place: str,
    fine: Sequence[_Fine],
    low: str,
    originals: Sequence[RoundedOutput],
    *,
    leads: bool,
) -> Finding:
    first, outputs = fine[0], ", ".join(repr(each.output) for each in fine)
    allowed = _allowed(low, [each.output for each in fine], originals)
    usual: dict[str, Json] = {"nrmse": allowed}
    is_usual = allowed == usual_nrmse(low)
    name = next(name for name, each in recipe.targets.items() if each is target)
    own = place.startswith(f"targets.{name}.")
    which = "the target's own limit" if own else f"the limit from {place}"
    if place == FROM_PRECISION:
        which = f"the usual limit of {low}"
    reach = low if leads else f"{low} throughout"
    message = (
        f"{which}, {first.name} {first.limit:g} on {outputs}, is out of reach of {reach}: "
        + (
            f"rounding the values to it already leaves about {first.rounding:.2g}"
            if first.case is None
            else f"the original itself, with {_ROUNDED[low]} rounded to it, is off by"
            f" {first.rounding:.2g} in case {first.case!r}"
        )
    )
    change: dict[str, Json] = {}
    enough = f"nrmse {allowed:g} is {'usually allowed' if is_usual else 'what rounding asks for'}"
    if own and not is_usual:
        text = f"Write what you need: {enough}."
    elif own:
        text = (
            f"Remove the target's limits: {low} is then allowed nrmse <= {usual['nrmse']:g}. Or set"
            " a limit that your task can bear."
        )
    elif place == "the command line":
        none = "Pass none, or " if is_usual else "Pass "
        text = f"{none}--tolerance nrmse={allowed:g}: {enough}."
    else:
        kind = computed_type(target)
        _, _, part = name.rpartition("/")
        key = f"{f'parts.{part}' if '/' in name else 'verify'}.by_precision.{kind}"
        change = {f"{key}.outputs.{each.output}": usual for each in fine}
        if not place.endswith("outputs") and place != FROM_PRECISION:
            change = {f"{key}.tolerance": usual}
        text = f"Give {kind} limits of its own: {enough}."
        if place == "verify.outputs":
            change = _of_float32_alone(recipe, kind) | change
            text = f"Let the limits of verify.outputs hold for float32 alone. {text}"
    if not leads:
        text = f"Keep modules in float32, which may meet it (not tried). Or: {text}"
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
            "case": first.case,
        },
        Remedy(text, change),
        severity="error" if leads else "warning",
    )
