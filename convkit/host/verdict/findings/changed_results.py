"""Findings about results that must not change but did: a row with its batch, real positions with
padding, one run from the next.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import (
    InvarianceCheck,
    InvarianceMetrics,
    TensorMetrics,
    VerifyResult,
)
from convkit.protocol.metrics.limit_kinds import Limit
from convkit.protocol.metrics.limits import is_same
from convkit.protocol.metrics.metric_registry import limits_set
from convkit.protocol.metrics.number_text import distinct_texts

# A model's inaccuracy is estimated from its best case, which may have only a few elements; the
# largest error among many elements is up to about twice that among a few.
_FEW_TO_MANY = 2.0

_NOT_FINITE = "NaN or infinity in one case only"
# The causes of NaN and infinity in low precision.
_MAKE_NAN = ("N201", "N202", "N203", "N205")

_CODES: dict[InvarianceCheck, str] = {
    "padding": "N301",
    "masked-values": "N301",
    "batch": "N302",
    "determinism": "N303",
}


def invariance_findings(
    measured: VerifyResult, limits_of: Callable[[str], Mapping[str, float]]
) -> list[Finding]:
    """Return N301, N302 and N303 if the built model is less invariant than the original.
    `limits_of` are those of an output.

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
            limits = limits_of(candidate.output)
            if check.check == "determinism":
                finding = _determinism(check, original, candidate, limits)
            elif "by_scores" in limits and _follow_scores(measured, candidate.output):
                continue  # the scores' own limit judges them
            else:
                finding = _invariance(
                    check, original, candidate, _Allowed(limits, 2, _accuracy(measured, candidate))
                )
            if finding is not None:
                findings[code] = finding
    return list(findings.values())


def _follow_scores(measured: VerifyResult, output: str) -> bool:
    """Return whether labels that differ are what the model's own scores choose, in each case."""
    off = [
        metrics
        for case in measured.cases
        for metrics in case.outputs
        if metrics.output == output and metrics.agreement < 1
    ]
    return bool(off) and all(math.isclose(each.agreement + each.scored, 1) for each in off)


def weaken_explained_nan(findings: Sequence[Finding]) -> list[Finding]:
    """Reduce N301 and N302 to warnings if NaN or infinity is all they report, and a proven cause
    explains it: a program may return NaN in some cases only, such as those with fully masked rows.
    """
    cause = next((each for each in findings if each.is_error and each.code in _MAKE_NAN), None)
    if cause is None:
        return list(findings)
    return [
        dataclasses.replace(
            finding,
            severity="warning",
            message=f"{finding.message}; {cause.code} explains it",
            remedy=None,
        )
        if finding.code in ("N301", "N302") and finding.evidence.get("failures") == [_NOT_FINITE]
        else finding
        for finding in findings
    ]


def weaken_batch_findings(
    findings: Sequence[Finding], rows: str | None, cases: Sequence[CaseVerdict]
) -> list[Finding]:
    """Reduce N302 to a warning if a single row is wrong as well: the cause is then another.

    `rows` is the batch axis.
    """
    alone = {
        output.output: case.case
        for case in reversed(cases)
        if case.sizes.get(rows or "") == 1 and case.error is None
        for output in case.outputs
        if not output.passed
    }
    return [
        dataclasses.replace(
            finding,
            severity="warning",
            message=f"{finding.message}; a single row is wrong as well, in case"
            f" {alone[finding.place.tensor]!r}, so the batch is not the cause",
            remedy=None,
        )
        if finding.code == "N302" and finding.place.tensor in alone
        else finding
        for finding in findings
    ]


# If the original's own runs differ by this fraction of a model's error, they explain the error.
_SHARE_OF_ERROR = 0.1
# Changes whose size two runs do not show: a clock moves on, and state adds up.
_UNBOUNDED = ("number", "state")


def blame_original(
    findings: Sequence[Finding], measured: VerifyResult, known: Sequence[Finding] = ()
) -> list[Finding]:
    """Replace N402 with N303 if parity fails because the original is not the same twice.

    Such an original does not even equal itself, so nothing can be said about the graph. `known` are
    the findings of the reference: its N303 names the operation that changes.
    """
    if not any(finding.is_error and finding.code in ("N101", "N402") for finding in findings):
        return list(findings)
    blamed = _blamed(measured, next((each for each in known if each.code == "N303"), None))
    if blamed is None:
        return list(findings)
    return [blamed, *(each for each in findings if each.code not in ("N303", "N402"))]


def with_nan_of_original(findings: Sequence[Finding], known: Sequence[Finding]) -> list[Finding]:
    """Say N103 as the reference does, once for all outputs: `known` are its findings, and its own
    names the operation and what causes it.
    """
    named = {
        (each.place.case, output): each
        for each in known
        if each.code == "N103"
        for output in cast("list[str]", each.evidence.get("outputs", []))
    }
    said: list[Finding] = []
    for finding in findings:
        place = (finding.place.case, finding.place.tensor or "")
        one = named.get(place, finding) if finding.code == "N103" else finding
        if one not in said:
            said.append(one)
    return said


def blame_random(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return a target's findings with N303 first, as an error, if a runtime refuses the very
    operator that draws the original's random values: with another operator, nothing would match.
    """
    known = next((each for each in findings if each.code == "N303"), None)
    if known is None or known.evidence.get("change") != "random":
        return findings
    drawn = str(known.evidence["operator"]).strip("_").partition("_")[0]
    if not any(each.is_error and drawn in each.message.lower() for each in findings):
        return findings
    rest = [each for each in findings if each is not known]
    return (dataclasses.replace(known, severity="error"), *rest)


def _blamed(measured: VerifyResult, known: Finding | None) -> Finding | None:
    """Return N303 if the original's own runs explain the errors, with the place that is known."""
    if known is not None and known.evidence.get("change") in _UNBOUNDED:
        return dataclasses.replace(known, severity="error")
    errors = [output for case in measured.cases for output in case.outputs]
    random = [
        output
        for check in measured.invariance
        if check.check == "determinism"
        for output in check.original
        if not is_same(output)
        and output.max_abs
        >= _SHARE_OF_ERROR
        * max((_beside(output, e) for e in errors if e.output == output.output), default=0)
    ]
    if not random:
        return None
    if known is not None and "change" in known.evidence:
        return dataclasses.replace(known, severity="error")
    worst = max(random, key=lambda output: output.max_abs)
    return Finding(
        "N303",
        f"the original itself returns a different {worst.output!r} on every run, by"
        f" {worst.max_abs:.3g}; nothing can match it",
        Place(tensor=worst.output),
        {"max_abs_original": worst.max_abs},
        Remedy("Put the model into eval mode, and seed anything random."),
        severity="error",
    )


def _beside(changed: TensorMetrics, error: TensorMetrics) -> float:
    """Return a case's largest error in terms of the values of the case that ran twice: what changes
    grows with the values, such as of `plain-rows:huge`.
    """
    larger = error.reference_max / changed.reference_max if changed.reference_max > 0 else 1.0
    return error.max_abs / larger if larger > 1 else error.max_abs


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
        for limit in limits_set(self.limits, candidate):
            allowed = limit.distance(original, times=0) + self._slack(limit)
            distance = limit.distance(candidate, self.times)
            if not distance <= allowed:
                figures = limit.at_distance(distance), limit.at_distance(allowed)
                found.append(limit.comparison(*figures, passed=False))
        return found

    def _slack(self, limit: Limit) -> float:
        at_best = min(map(limit.distance, self.accuracy), default=0.0)
        return self.times * max(limit.allowed_distance, _FEW_TO_MANY * at_best)


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
    broken = [_NOT_FINITE] if not _is_sound(candidate) else allowed.breaches(original, candidate)
    if not broken:
        return None
    match check.check:
        case "padding":
            what = f"more padding changes {candidate.output!r} at real positions"
        case "masked-values":
            what = f"values at masked positions change {candidate.output!r} at real positions"
        case _:
            what = f"a row of {candidate.output!r} depends on the other rows of its batch"
    moved = distinct_texts(candidate.max_abs, original.max_abs)
    return Finding(
        _CODES[check.check],
        f"{what}: by {moved[0]}, the original's by {moved[1]} ({'; '.join(broken)})",
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
        "Check what the export did with the mask. Every attention, mean and maximum over"
        " positions must still apply it."
    ),
    "N302": Remedy(
        "Look for what is computed over all rows: normalization in training mode, a mean or"
        " maximum over the first dimension, or one dynamic-quantization scale for the whole"
        " batch."
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
    moved = distinct_texts(candidate.max_abs, original.max_abs)
    message = f"{candidate.output!r} differs between two runs of the same inputs by {moved[0]}"
    if not is_same(original):
        message += f" (the original's by {moved[1]})"
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
            "Look for random operators (Dropout in training mode, RandomNormal) in the exported"
            " graph. On a GPU, look for kernels that accumulate in no fixed order."
        ),
        severity="error" if broken else "warning",
    )
