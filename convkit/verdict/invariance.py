"""Findings about results that must not change but did: a row with its batch, real positions with
padding, one run from the next.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.limits import allclose_excess, is_same
from convkit.recipe.models import Recipe, Target, Tolerance
from convkit.recipe.tolerances import limits_of, tolerance_for
from convkit.worker.protocol import InvarianceCheck, InvarianceMetrics, TensorMetrics, VerifyResult

# A model's inaccuracy is estimated from its best case, which may have only a few elements; the
# largest error among many elements is up to about twice that among a few.
_FEW_TO_MANY = 2.0

_CODES: dict[InvarianceCheck, str] = {
    "padding": "N301",
    "masked-values": "N301",
    "batch": "N302",
    "determinism": "N303",
}


def invariance_findings(
    recipe: Recipe, target: Target, measured: VerifyResult, override: Tolerance | None
) -> list[Finding]:
    """Return N301, N302 and N303 if the built model is less invariant than the original.

    In two cases with the same expected result, a model within its tolerance of the original cannot
    differ from itself by more than the original does plus twice the tolerance (the triangle
    inequality). If the model misses its tolerance, its error in its best case replaces the
    tolerance: parity already reports the inaccuracy, and this check reports what else is wrong. If
    both checks of padding fail, only the first is reported.
    """
    findings: dict[str, Finding] = {}
    for check in measured.invariance:
        code = _CODES[check.check]
        if code in findings:
            continue
        originals = {metrics.output: metrics for metrics in check.original}
        for candidate in check.candidate:
            original = originals.get(candidate.output)
            if original is None or code in findings:
                continue
            limits = limits_of(tolerance_for(recipe, target, candidate.output, override))
            if check.check == "determinism":
                finding = _determinism(check, original, candidate, limits)
            else:
                finding = _invariance(
                    check, original, candidate, _Allowed(limits, 2, _accuracy(measured, candidate))
                )
            if finding is not None:
                findings[code] = finding
    return list(findings.values())


# If the original's own runs differ by this fraction of a model's error, they explain the error.
_SHARE_OF_ERROR = 0.1


def blame_original(findings: Sequence[Finding], measured: VerifyResult) -> list[Finding]:
    """Replace N402 with N303 if parity fails because the original is random.

    Such an original does not even equal itself, so nothing can be said about the graph.
    """
    errors = [output for case in measured.cases for output in case.outputs]
    random = [
        output
        for check in measured.invariance
        if check.check == "determinism"
        for output in check.original
        if not is_same(output)
        and output.max_abs
        >= _SHARE_OF_ERROR
        * max((e.max_abs for e in errors if e.output == output.output), default=0)
    ]
    if not random or not any(
        finding.is_error and finding.code in ("N101", "N402") for finding in findings
    ):
        return list(findings)
    worst = max(random, key=lambda output: output.max_abs)
    finding = Finding(
        "N303",
        f"the original itself gives another {worst.output!r} at each run, by {worst.max_abs:.3g}:"
        " nothing can equal it",
        Place(tensor=worst.output),
        {"max_abs_original": worst.max_abs},
        Remedy("Put the model into inference mode, and give what draws at random a fixed seed."),
        severity="error",
    )
    return [finding, *(each for each in findings if each.code not in ("N303", "N402"))]


def _accuracy(measured: VerifyResult, candidate: TensorMetrics) -> list[TensorMetrics]:
    """Return an output's metrics in each case of the ladder in which it was compared."""
    outputs = (output for case in measured.cases for output in case.outputs)
    return [output for output in outputs if output.output == candidate.output and output.frontier]


@dataclasses.dataclass(frozen=True)
class _Allowed:
    """How far an output may differ from itself: `times` the limits, or `times` its error in its
    best case.
    """

    limits: Mapping[str, float]
    times: int
    accuracy: Sequence[TensorMetrics] = ()

    def breaches(self, original: TensorMetrics, candidate: TensorMetrics) -> list[str]:
        """Return the exceeded limits, each as a sentence with both figures."""
        found = []
        for name in ("max_abs", "max_rel", "mean_abs", "rms"):
            if name in self.limits:
                allowed = getattr(original, name) + self._slack(
                    self.limits[name], operator.attrgetter(name)
                )
                found += _breach(name, getattr(candidate, name), allowed)
        if "cosine" in self.limits:
            slack = self._slack(
                _angle(self.limits["cosine"]), lambda metrics: _angle(metrics.cosine)
            )
            allowed = min(_angle(original.cosine) + slack, math.pi)
            if not _angle(candidate.cosine) <= allowed:
                found.append(f"cosine {candidate.cosine:.6g} < {math.cos(allowed):.6g}")
        if "atol" in self.limits or "rtol" in self.limits:
            rtol = self.limits.get("rtol", 0.0)
            slack = self._slack(
                self.limits.get("atol", 0.0), lambda metrics: allclose_excess(metrics, rtol)
            )
            found += _breach(
                "atol", allclose_excess(candidate, self.times * rtol), original.max_abs + slack
            )
        return found

    def _slack(self, limit: float, figure: Callable[[TensorMetrics], float]) -> float:
        return self.times * max(limit, _FEW_TO_MANY * min(map(figure, self.accuracy), default=0.0))


def _breach(name: str, found: float, allowed: float) -> list[str]:
    return [] if found <= allowed else [f"{name} {found:.3g} > {allowed:.3g}"]


def _angle(cosine: float) -> float:
    """Return the angle between two vectors: unlike the cosine, it obeys the triangle inequality."""
    return cosine if math.isnan(cosine) else math.acos(max(-1.0, min(1.0, cosine)))


def _is_sound(metrics: TensorMetrics) -> bool:
    """Return whether NaN and infinities are at the same positions on both sides."""
    return (
        metrics.nan_reference == metrics.nan_candidate
        and metrics.inf_mismatched == 0
        and bool(metrics.frontier)
    )


def _invariance(
    check: InvarianceMetrics, original: TensorMetrics, candidate: TensorMetrics, allowed: _Allowed
) -> Finding | None:
    if not _is_sound(original):
        return None  # the original itself is broken, which N103 reports
    if candidate.nan_reference == candidate.nan_candidate and candidate.nan_reference:
        return None  # NaN in both cases is not a change; N102 reports it
    broken = (
        ["NaN or infinity in one case only"]
        if not _is_sound(candidate)
        else allowed.breaches(original, candidate)
    )
    if not broken:
        return None
    match check.check:
        case "padding":
            what = f"more padding moves {candidate.output!r} at real positions"
        case "masked-values":
            what = f"values at masked positions move {candidate.output!r} at real positions"
        case _:
            what = f"a row of {candidate.output!r} depends on the other rows of its batch"
    return Finding(
        _CODES[check.check],
        f"{what}: by {candidate.max_abs:.3g}, the original's by {original.max_abs:.3g}"
        f" ({'; '.join(broken)})",
        Place(tensor=candidate.output, case=check.case),
        {
            "check": check.check,
            "max_abs": candidate.max_abs,
            "max_abs_original": original.max_abs,
            "failures": list(broken),
        },
        _REMEDIES[_CODES[check.check]],
    )


_REMEDIES = {
    "N301": Remedy(
        "Look at what became of the mask in the export: whether each attention, mean and maximum"
        " over positions still applies it."
    ),
    "N302": Remedy(
        "Look for what is taken over all rows: normalisation in training mode, a mean or maximum"
        " over the first dimension, one scale of a dynamic quantisation for the whole batch."
    ),
}


def _determinism(
    check: InvarianceMetrics,
    original: TensorMetrics,
    candidate: TensorMetrics,
    limits: Mapping[str, float],
) -> Finding | None:
    if is_same(candidate):
        return None
    sound = _is_sound(candidate)
    broken = (
        _Allowed(limits, times=1).breaches(original, candidate)
        if sound
        else ["NaN or infinity in one run only"]
    )
    message = (
        f"{candidate.output!r} differs between two runs of the same inputs by"
        f" {candidate.max_abs:.3g}"
    )
    if not is_same(original):
        message += f" (the original's by {original.max_abs:.3g})"
    return Finding(
        "N303",
        message + (f": {'; '.join(broken)}" if broken else ", within the tolerance"),
        Place(tensor=candidate.output, case=check.case),
        {
            "max_abs": candidate.max_abs,
            "max_abs_original": original.max_abs,
            "failures": list(broken),
        },
        Remedy(
            "Look for operators that draw at random (Dropout in training mode, RandomNormal) in the"
            " exported graph; on a GPU, for kernels that add up in no fixed order."
        ),
        severity="error" if broken else "warning",
    )
