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
from convkit.host.nightly.baseline_changes import Better, Change, Elsewhere, Note, changed_keys
from convkit.host.nightly.figure_limits import change_text, is_better, is_worse, is_worse_score
from convkit.host.nightly.nightly_record import FaultKind, NightlyFault
from convkit.host.nightly.recipe_demands import OPTIONAL, TOLERANCE, ChangedDemand, changed_demands
from convkit.host.nightly.run_snapshot import (
    PARITY,
    ScoreSnapshot,
    Snapshot,
    TargetSnapshot,
    VerificationSnapshot,
    figures,
)
from convkit.host.record.run_record import WORST_LAST

# Best first.
_EVIDENCE = ("device", "simulated", "skipped")


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
        *_tried(before, now),
        *_demands(before, now),
        *_sources(before, now),
        *_targets(before, now),
        *_waivers(before.waivers, now.waivers),
        *_tools(before, now),
        *_figures(before, now, processors),
        *_scores(before, now, processors),
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
    if before.options is not None and now.options is not None:
        yield from changed_keys("target", before.options, now.options, f"{name} ", name)
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
            subject = f"{shown} {output}{TOLERANCE}"
            limits = ({subject: each.limits} for each in (measured, now.outputs[output]))
            yield from (_demand(each, target) for each in changed_demands(*limits))


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


def _tried(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Compare the keys that decide what is tried. Other inputs are neither looser nor stricter:
    figures on them say nothing about the accepted ones, so every change is to be accepted.
    """
    added = _added(before, now)
    for change in changed_keys("case", before.verified_on, now.verified_on, "the recipe's "):
        is_added = isinstance(change, NightlyFault) and change.subject in added
        yield Better(change.message) if is_added else change


def _added(before: Snapshot, now: Snapshot) -> dict[str, str]:
    """Return the keys of what the recipe compares or scores besides all that it did before."""
    known = before.verified_on
    new = tuple(each for each in OPTIONAL if not any(key.startswith(each) for key in known))
    return {key: value for key, value in now.verified_on.items() if key.startswith(new)}


def _sources(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Compare the digests of the model and of files. A new task's own file replaces nothing."""
    own = {f"file {value}" for value in _added(before, now).values()} - before.sources.keys()
    found = {name: digest for name, digest in now.sources.items() if name not in own}
    yield from changed_keys("source", before.sources, found, "")


def _demands(before: Snapshot, now: Snapshot) -> Iterator[Change]:
    """Compare what the recipes demand. Tolerances that both runs applied are compared as applied,
    in each verification.
    """
    if not before.demands:
        yield Note(
            "the baseline was accepted with an earlier release of convkit, which recorded no limits"
            " on scores, goals and skipped cases; accept a run to have them compared"
        )
        return
    applied = set(_applied(before)) & set(_applied(now))
    for each in changed_demands(before.demands, now.demands):
        target = "" if each.subject.startswith("the ") else each.subject.partition(" ")[0]
        name = target.partition("/")[0]
        known = not target or (name in before.targets and name in now.targets)
        if known and each.subject not in applied:
            yield _demand(each, name)


def _applied(snapshot: Snapshot) -> Iterator[str]:
    """Yield the subjects of the tolerances that a run applied."""
    for name, target in snapshot.targets.items():
        for verification in target.verifications.values():
            yield from (f"{name} {output}{TOLERANCE}" for output in verification.outputs)


def _demand(changed: ChangedDemand, target: str) -> Change:
    if changed.change == "stricter":
        return Better(changed.message)
    kind: FaultKind = "tolerance" if changed.limits else "case"
    subject = f"{changed.subject.removesuffix(TOLERANCE)} {changed.name}"
    return NightlyFault(kind, subject, changed.message, target)


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


def _scores(before: Snapshot, now: Snapshot, processors: Processors | None) -> Iterator[Change]:
    """Compare scores on the user's rows. On another processor, rounding may change one decision."""
    kernels = {place for place, _ in _other_kernels(before, now, processors)}
    for name, target in before.targets.items():
        later = now.targets[name].verifications if name in now.targets else {}
        for stage, verification in target.verifications.items():
            same = counterpart(stage, verification.integer_kernels, later)
            was, shown = verification.score, stage.removeprefix("verify:")
            if was is None or same is None or later[same].evidence == "skipped":
                continue
            found = later[same].score
            if found is None:
                message = f"{shown} is no longer scored by {was.metric}"
                yield NightlyFault("case", f"{shown} {was.metric}", message, name)
            elif found.metric == was.metric and (name, shown) not in kernels:
                elsewhere = processors is not None and processors.differ
                yield from _score(name, shown, was, found, elsewhere=elsewhere)


def _score(
    target: str, shown: str, was: ScoreSnapshot, found: ScoreSnapshot, *, elsewhere: bool
) -> Iterator[Change]:
    subject = f"{shown} {was.metric}"
    if found.rows < was.rows:
        message = f"{subject}: {found.rows} rows were scored; the baseline has {was.rows}"
        yield NightlyFault("case", f"{subject} rows", message, target)
    if math.isnan(was.loss):
        return
    message = f"{subject} loss {was.loss:.4g} -> {found.loss:.4g}"
    if is_worse_score(was.loss, found.loss):
        if elsewhere and not is_worse_score(was.loss, found.loss, 1 / max(1, found.rows)):
            yield Elsewhere(f"{message}: one row, recorded on another processor")
        else:
            yield NightlyFault("figure", f"{subject} loss", message, target)
    elif is_worse_score(found.loss, was.loss):
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
