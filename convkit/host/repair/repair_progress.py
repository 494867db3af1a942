"""Compares two runs of a repair: what a change to the recipe broke, and what it made better. Pure
functions.
"""

import math
from collections.abc import Iterator

from convkit.host.record.run_record import CaseVerdict, RunRecord, TargetReport
from convkit.protocol.metrics.limits import overshoot

# A smaller error counts as better only if it shrinks by more than rounding can explain.
_NOTICEABLE = 0.99

# Failing cases, those of them without outputs, failing outputs, and the largest error in units of
# its limit; less is better.
_Extent = tuple[int, int, int, float]


def needs_repair(record: RunRecord) -> bool:
    """Return whether a target failed or broke. A recipe change cannot fix a skipped target."""
    return any(_is_wrong(target) for target in record.targets)


def worsened(before: RunRecord, after: RunRecord) -> list[str]:
    """Say what a change to the recipe broke: targets that were verified, and cases that passed."""
    reasons = []
    for target, other in _pairs(before, after):
        if target.status == "verified" and other.status != "verified":
            reasons.append(f"{target.name} was verified and is {other.status}")
            continue
        broken = sorted(_cases(target, passed=True) & _cases(other, passed=False))
        if broken:
            reasons.append(f"{target.name} passed {', '.join(case for _, case in broken)}")
    return reasons


def improves(before: RunRecord, after: RunRecord) -> bool:
    """Return whether a change brought some target closer to its verdict, and none further from it.

    Closer is what the verdict itself measures: fewer failing cases or outputs, or a smaller error.
    A target of which nothing could be judged comes closer when a case passes: a finding that only
    gives way to another one is no improvement.
    """
    pairs = [each for each in _pairs(before, after) if _is_wrong(each[0])]
    if worsened(before, after) or any(_is_closer(other, target) for target, other in pairs):
        return False
    return any(_is_closer(target, other) for target, other in pairs)


def _pairs(before: RunRecord, after: RunRecord) -> Iterator[tuple[TargetReport, TargetReport]]:
    now = {target.name: target for target in after.targets}
    for target in before.targets:
        if target.name in now:
            yield target, now[target.name]


def _is_wrong(target: TargetReport) -> bool:
    return target.status in ("failed", "broken")


def _is_closer(before: TargetReport, after: TargetReport) -> bool:
    if not _is_wrong(before) or not _is_wrong(after):
        return _is_wrong(before) and after.status == "verified"
    if not _all_cases(before) or not _all_cases(after):
        return bool(_cases(after, passed=True)) and not _cases(before, passed=True)
    (*counts, error), (*new_counts, new_error) = _extent(before), _extent(after)
    return new_counts < counts or (new_counts == counts and new_error < error * _NOTICEABLE)


def _extent(target: TargetReport) -> _Extent:
    cases = [case for _, case in _all_cases(target) if not case.passed]
    outputs = [output for case in cases for output in case.outputs if not output.passed]
    errors = [overshoot(output.metrics, output.limits) for output in outputs]
    refused = sum(case.error is not None for case in cases)
    error = math.inf if refused else max(errors, default=0.0)
    return len(cases), refused, len(outputs), error


def _all_cases(target: TargetReport) -> list[tuple[str, CaseVerdict]]:
    return [
        (verification.label, case)
        for verification in target.verifications
        for case in verification.cases
    ]


def _cases(target: TargetReport, *, passed: bool) -> set[tuple[str, str]]:
    return {(version, case.case) for version, case in _all_cases(target) if case.passed == passed}
