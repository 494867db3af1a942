"""Compares the nightly run's snapshot with the baseline's: regressions and improvements. Pure.

Every difference for the worse is a fault, reported with both values. A nightly run fails on them;
`convkit accept` prints them when it moves the baseline.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from packaging.version import InvalidVersion, Version

from convkit.host.audit.differences.across_processors import (
    WITHIN_ROUNDING,
    Processors,
    counterpart,
    within_rounding,
)
from convkit.host.nightly.figure_limits import change_text, is_better, is_worse
from convkit.host.nightly.nightly_record import FaultKind, NightlyFault
from convkit.host.nightly.run_snapshot import (
    LARGER_IS_BETTER,
    PARITY,
    Snapshot,
    TargetSnapshot,
    VerificationSnapshot,
    figures,
)
from convkit.host.record.run_record import WORST_LAST

# Best first.
_EVIDENCE = ("device", "simulated", "skipped")


@dataclasses.dataclass(frozen=True)
class Better:
    """An improvement over the baseline."""

    message: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A difference that is neither better nor worse."""

    message: str


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """What the baseline's processor explains: figures that are equal within rounding, or that are
    of other integer kernels and so not comparable. Neither better nor worse.
    """

    message: str


Change = NightlyFault | Better | Note | Elsewhere


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What differs between two snapshots."""

    faults: tuple[NightlyFault, ...] = ()
    improvements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def compare(before: Snapshot, now: Snapshot, processors: Processors | None = None) -> Comparison:
    """Return how a run differs from the baseline. `processors` are those of the baseline's run and
    of this one; without them, they are the same.
    """
    changes = [
        *_recipe(before, now),
        *_mapping("case", before.verified_on, now.verified_on, "the recipe's "),
        *_mapping("source", before.sources, now.sources, ""),
        *_targets(before, now),
        *_waivers(before.waivers, now.waivers),
        *_tools(before, now),
        *_figures(before, now, processors),
    ]
    return Comparison(
        tuple(each for each in changes if isinstance(each, NightlyFault)),
        tuple(each.message for each in changes if isinstance(each, Better)),
        tuple(each.message for each in changes if isinstance(each, Note)),
        tuple(each.message for each in changes if isinstance(each, Elsewhere)),
    )


def unaccepted(now: Snapshot) -> tuple[NightlyFault, ...]:
    """Return the targets that failed or broke, of a recipe without a baseline.

    A target that was skipped because this machine lacks its device is not a regression.
    """
    return tuple(
        NightlyFault("verdict", name, f"{name} {_is(target.status)}: {target.headline}", name)
        for name, target in now.targets.items()
        if target.status in ("failed", "broken")
    )


def _is(status: str) -> str:
    return "failed" if status == "failed" else f"is {status}"


def _recipe(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    if before.recipe != now.recipe:
        yield NightlyFault(
            "recipe",
            "name",
            f"the recipe is named {now.recipe!r}; its baseline was accepted for {before.recipe!r}",
        )


def _mapping(
    kind: FaultKind, before: Mapping[str, str], now: Mapping[str, str], prefix: str
) -> Iterator[Change]:
    """Compare keys and their values; every difference is a fault."""
    for key in dict.fromkeys([*before, *now]):
        if before.get(key) != now.get(key):
            was, found = before.get(key, "(absent)"), now.get(key, "(absent)")
            message = f"{prefix}{key}: {was} -> {found}"
            yield NightlyFault(kind, key, message)


def _waivers(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    """Compare waivers: a new or a longer one loosens what is accepted."""
    for waiver, until in now.items():
        target = waiver.partition(" in ")[2]
        if waiver not in before:
            message = f"the recipe newly waives {waiver} (until {until})"
            yield NightlyFault("waiver", waiver, message, target)
        elif until > before[waiver]:
            message = f"the recipe waives {waiver} until {until}, not {before[waiver]} as accepted"
            yield NightlyFault("waiver", waiver, message, target)
        elif until < before[waiver]:
            yield Note(f"the recipe waives {waiver} until {until} only ({before[waiver]} before)")
    for waiver in sorted(before.keys() - now.keys()):
        yield Better(f"the recipe no longer waives {waiver}")


def _targets(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    for name, target in before.targets.items():
        if name not in now.targets:
            was = f"it was {target.status} in the baseline"
            yield NightlyFault("target", name, f"target {name!r} was removed; {was}", name)
            continue
        yield from _target(name, target, now.targets[name])
    for name, target in now.targets.items():
        if name not in before.targets:
            yield Better(f"target {name!r} is new: {target.status}")
            if target.status in ("failed", "broken"):
                message = f"{name} {_is(target.status)} (not in the baseline): {target.headline}"
                yield NightlyFault("verdict", name, message, name)


def _target(name: str, before: TargetSnapshot, now: TargetSnapshot) -> Iterator[Change]:
    for part in ("runtime", "device", "precision"):
        was, found = getattr(before, part), getattr(now, part)
        if was != found:
            yield NightlyFault("target", f"{name} {part}", f"{name} {part}: {was} -> {found}", name)
    rank = WORST_LAST.index(now.status) - WORST_LAST.index(before.status)
    if rank > 0:
        message = f"{name} {_is(now.status)} ({before.status} in the baseline): {now.headline}"
        yield NightlyFault("verdict", name, message, name)
    elif rank < 0:
        yield Better(f"{name} {before.status} -> {now.status}")
    if now.status == "broken" or (rank > 0 and not now.verifications):
        return  # nothing was verified: the verdict covers it
    known = set()
    for stage, verification in before.verifications.items():
        shown = stage.removeprefix("verify:")
        same = counterpart(stage, verification.integer_kernels, now.verifications)
        if same is None:
            message = f"{shown} is no longer verified; it was {verification.status} in the baseline"
            yield NightlyFault("target", shown, message, name)
        else:
            known.add(same)
            yield from _verification(name, shown, verification, now.verifications[same])
    for stage in sorted(now.verifications.keys() - known):
        yield Better(f"{stage.removeprefix('verify:')} is verified as well")


def _verification(
    target: str, shown: str, before: VerificationSnapshot, now: VerificationSnapshot
) -> Iterator[Change]:
    # Each family of processors is run by one kind of machine and simulated by the other.
    one_family = before.integer_kernels != "" and before.integer_kernels == now.integer_kernels
    rank = 0 if one_family else _rank(now.evidence) - _rank(before.evidence)
    if rank > 0:
        message = f"{shown} evidence: {before.evidence} -> {now.evidence}"
        yield NightlyFault("evidence", shown, message, target)
    elif rank < 0:
        yield Better(f"{shown} evidence: {before.evidence} -> {now.evidence}")
    if now.evidence == "skipped":
        return
    if before.providers and before.providers != now.providers and rank == 0:
        was, found = ", ".join(before.providers), ", ".join(now.providers) or "(none)"
        message = f"{shown} ran on {found}; the baseline ran on {was}"
        yield NightlyFault("evidence", f"{shown} provider", message, target)
    yield from _cases(target, shown, before, now)
    for output, measured in before.outputs.items():
        if output not in now.outputs:
            message = f"{shown}: output {output} is no longer compared"
            yield NightlyFault("case", f"{shown} {output}", message, target)
        else:
            limits = now.outputs[output].limits
            yield from _limits(target, f"{shown} {output}", measured.limits, limits)


def _rank(evidence: str) -> int:
    return _EVIDENCE.index(evidence) if evidence in _EVIDENCE else len(_EVIDENCE)


def _cases(
    target: str, shown: str, before: VerificationSnapshot, now: VerificationSnapshot
) -> Iterator[Change]:
    for case, sizes in before.cases.items():
        if case not in now.cases:
            message = f"{shown}: case {case} was dropped"
            yield NightlyFault("case", f"{shown} {case}", message, target)
        elif now.cases[case] != sizes:
            was, found = _sizes(sizes), _sizes(now.cases[case])
            message = f"{shown}: case {case} has {found}; the baseline's had {was}"
            yield NightlyFault("case", f"{shown} {case}", message, target)
    for case in sorted(now.cases.keys() - before.cases.keys()):
        yield Better(f"{shown}: case {case} is new")


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"


def _limits(
    target: str, shown: str, before: Mapping[str, float], now: Mapping[str, float]
) -> Iterator[Change]:
    for name, was in before.items():
        if name not in now:
            message = f"{shown} tolerance: the limit {name} {was:g} was removed"
            yield NightlyFault("tolerance", f"{shown} {name}", message, target)
            continue
        found = now[name]
        tighter = found > was if name in LARGER_IS_BETTER else found < was
        message = f"{shown} tolerance: {name} {_number(was, found)} -> {_number(found, was)}"
        if tighter:
            yield Better(message)
        elif found != was:
            yield NightlyFault("tolerance", f"{shown} {name}", message, target)
    for name in sorted(now.keys() - before.keys()):
        yield Better(f"{shown} tolerance: {name} {now[name]:g} is new")


def _number(value: float, other: float) -> str:
    """Format a number with just enough digits to differ from another one."""
    for digits in (6, 9):
        if f"{value:.{digits}g}" != f"{other:.{digits}g}":
            return f"{value:.{digits}g}"
    return repr(value)


def _tools(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Compare versions; list each change once, with the affected stages."""
    changed: dict[tuple[str, str, str | None], list[str]] = {}
    for stage, versions in before.tools.items():
        if stage not in now.tools:
            continue  # the stage is gone or did not run: its target reports that
        for name, was in versions.items():
            found = now.tools[stage].get(name)
            if found != was:
                changed.setdefault((name, was, found), []).append(stage)
    for (name, was, found), stages in changed.items():
        where = ", ".join(stages)
        if found is None:
            message = f"{name} {was} is no longer used in {where}"
            yield NightlyFault("tool", f"{name} in {where}", message)
        elif _is_newer(found, was):
            yield Note(f"newer tool: {name} {was} -> {found} in {where}")
        else:
            message = f"{name} {was} -> {found} in {where}, an older release than the baseline's"
            yield NightlyFault("tool", f"{name} in {where}", message)


def _is_newer(found: str, was: str) -> bool:
    """Return True if a version is at least as new as another; the local part (`+cpu`) is
    ignored.
    """
    try:
        return Version(Version(found).public) >= Version(Version(was).public)
    except InvalidVersion:
        return False


def _figures(before: Snapshot, now: Snapshot, processors: Processors | None) -> Iterator[Change]:
    found = {(subject, metric): value for _, subject, metric, value in figures(now)}
    kernels = dict(_other_kernels(before, now, processors))
    for (_, shown), (recorded, mine) in kernels.items():
        yield Elsewhere(
            f"{shown}: neither better nor worse: the baseline's figures are of {recorded} integer"
            f" kernels, and it has none of this processor's, which are {mine}"
        )
    elsewhere = processors is not None and processors.differ
    largest = dict(_largest(before, now))
    for target, subject, metric, was in figures(before):
        value = found.get((subject, metric))
        if value is None or was != was:  # noqa: PLR0124 - NaN: the baseline has no figure
            continue  # the output, verification or target is gone, which another fault reports
        if (target, subject.partition(" ")[0]) in kernels and metric in PARITY:
            continue
        message = f"{subject} {change_text(metric, was, value)}"
        worse, better = is_worse(metric, was, value), is_better(metric, was, value)
        rounded = elsewhere and metric in PARITY and (worse or better)
        if rounded and within_rounding(metric, was, value, largest.get(subject, math.nan)):
            yield Elsewhere(f"{message}: {WITHIN_ROUNDING}, recorded on another processor")
        elif worse:
            yield NightlyFault("figure", f"{subject} {metric}", message, target)
        elif better:
            yield Better(message)


def _largest(before: Snapshot, now: Snapshot) -> Iterator[tuple[str, float]]:
    """Yield each output's largest magnitude, as figures name it: the smaller one of both runs, so
    that no run can raise what counts as rounding.
    """
    for name, target in now.targets.items():
        for stage, verification in target.verifications.items():
            earlier = before.targets[name].verifications if name in before.targets else {}
            known = earlier[stage].outputs if stage in earlier else {}
            for output, measured in verification.outputs.items():
                older = known[output].largest if output in known else math.nan
                subject = f"{stage.removeprefix('verify:')} {output}"
                yield (
                    subject,
                    measured.largest if math.isnan(older) else min(older, measured.largest),
                )


def _other_kernels(
    before: Snapshot, now: Snapshot, processors: Processors | None
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield the verifications whose figures are of other integer kernels than the baseline's: the
    target and the verification, the baseline's kernels and today's.
    """
    if processors is None:
        return
    for name, target in now.targets.items():
        for stage, verification in target.verifications.items():
            # Older baselines name no kernels, but the processor.
            was: str = processors.before.integer_kernels or "unknown"
            if name in before.targets and stage in before.targets[name].verifications:
                was = before.targets[name].verifications[stage].integer_kernels or was
                if verification.integer_kernels and was != verification.integer_kernels:
                    shown = stage.removeprefix("verify:")
                    yield (name, shown), (was, verification.integer_kernels)
