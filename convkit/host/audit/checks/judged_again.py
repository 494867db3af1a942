"""Judges a run's recorded metrics again, and compares the outcome with its recorded verdicts."""

import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from convkit.host.audit.checks.contradictions import Contradiction, plain_text
from convkit.host.audit.checks.measured_figures import impossible_figures, misplaced_figures
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.keys.recipe import Axis, Recipe
from convkit.host.recipe.keys.tolerances import limits_for, limits_of, tolerance_for
from convkit.host.record.attachments import FOLDER, attachments
from convkit.host.record.run_record import (
    CaseVerdict,
    OutputVerdict,
    RunRecord,
    TargetReport,
    Verification,
    worst_status,
)
from convkit.host.report.report_file import REPORT_NAME, render_report
from convkit.host.run.rejudging import recorded_recipe, rejudge_record
from convkit.host.run.run_key import run_key
from convkit.host.verdict.target_reports import exit_code, precision_text
from convkit.host.verdict.waivers import day_of, with_waivers, without_waivers
from convkit.protocol.contract import DimensionError
from convkit.protocol.errors import ConvkitError
from convkit.protocol.metrics.limits import problems


@dataclasses.dataclass(frozen=True)
class JudgedAgain:
    """The result of judging a run again. `notes` may be explained by a newer convkit."""

    contradictions: tuple[Contradiction, ...]
    notes: tuple[str, ...] = ()


def judge_again(folder: Path, record: RunRecord, *, same_code: bool) -> JudgedAgain:
    """Derive every verdict of a run from its metrics and its recipe again.

    `same_code`: this very convkit judged the run. Then an error that it finds in the metrics and
    that the record lacks is a contradiction. Otherwise a newer check may explain it: a note.
    """
    try:
        recipe = recorded_recipe(record, folder)
    except ConvkitError as error:
        return JudgedAgain((), (f"its metrics were not judged again: {error}",))
    day = day_of(record.started)
    found = [
        Contradiction(("result.json", place), message)
        for target in record.targets
        for place, message in (*_target(target, record, recipe), *_waivers(target, recipe, day))
    ]
    for key in ("description", "name"):
        stated = record.recipe if key == "name" else record.description
        if stated != getattr(recipe, key):
            found.append(
                Contradiction(("result.json", "recipe.yaml"), f"the recipe's {key} differs")
            )
    status = worst_status([target.status for target in record.targets])
    if (status, exit_code(status)) != (record.status, record.exit_code):
        found.append(
            Contradiction(
                ("result.json",),
                f"the run is {record.status} with exit code {record.exit_code}, its targets make it"
                f" {status} with {exit_code(status)}",
            )
        )
    if found:
        return JudgedAgain(tuple(found))
    differences = tuple(_rejudged(record, recipe))
    if same_code:
        return JudgedAgain((*_derived(record, recipe), *differences))
    return JudgedAgain((), tuple(f"judged by this convkit, {each.message}" for each in differences))


def _derived(record: RunRecord, recipe: Recipe) -> Iterator[Contradiction]:
    """Compare what a run's record derives from its recipe: the contract and the run's key."""
    place = ("result.json", "recipe.yaml")
    if record.contract != contract_of(recipe):
        yield Contradiction(place, "the contract differs from the recipe's")
    experiment = recipe.track.experiment or f"convkit/{recipe.name}"
    if record.experiment != experiment:
        yield Contradiction(place, f"the experiment is {record.experiment}, not {experiment}")
    for target in record.targets:
        if recipe.parts:
            continue  # a joined target has its parts' precisions
        text = precision_text(recipe.targets[target.name], target.plan)
        if target.precision != text:
            yield Contradiction(place, f"{target.name}: precision {target.precision}, not {text}")
    keys = {stage.id: stage.key for stage in record.stages}
    if record.key != run_key(recipe, keys, day_of(record.started)):
        yield Contradiction(place, "the run's key does not match its stages and its recipe")


def _target(target: TargetReport, record: RunRecord, whole: Recipe) -> Iterator[tuple[str, str]]:
    recipe = whole.owner_of(target.name)
    if target.name not in recipe.targets:
        yield "recipe.yaml", f"the recipe has no target {target.name!r}"
        return
    shares = recipe.shares_of(target.name).values()
    for name in ("runtime", "device"):
        found = getattr(target, name)
        wanted = ", ".join(dict.fromkeys(str(getattr(share, name)) for share in shares))
        if found != wanted:
            yield "recipe.yaml", f"{target.name}: {name} {found}, but the recipe says {wanted}"
    for verification in target.verifications:
        again = functools.partial(_limits_again, verification, target, record, whole)
        yield from _verification(target, verification, recipe, functools.cache(again))
        for check in verification.invariance:
            for metrics in (*check.original, *check.candidate):
                for message in impossible_figures(metrics):
                    yield verification.stage, f"invariance to {check.case}: {message}"
    plain = without_waivers(target)
    statuses = [verification.status for verification in plain.verifications]
    if any(finding.is_error for finding in plain.findings) and "broken" not in statuses:
        statuses.append("failed")
    if plain.status != worst_status(statuses):
        yield (
            target.name,
            f"recorded as {target.status}, its verifications make it {worst_status(statuses)}",
        )


def _waivers(target: TargetReport, recipe: Recipe, day: dt.date) -> Iterator[tuple[str, str]]:
    """Apply the recipe's waivers to the recorded errors again."""
    again = with_waivers(target, recipe.waive, day)
    if again.waivers != target.waivers:
        yield "recipe.yaml", f"{target.name}: the recorded waivers are not the recipe's"
    for old, new in zip(target.verifications, again.verifications, strict=True):
        if old.status != new.status and "waived" in (old.status, new.status):
            yield old.stage, f"recorded as {old.status}, the recipe's waivers make it {new.status}"
    if target.status != again.status and "waived" in (target.status, again.status):
        yield (
            target.name,
            f"recorded as {target.status}, the recipe's waivers make it {again.status}",
        )


# The limits that the whole verdict sets, by case and output.
_Limits = dict[tuple[str, str], dict[str, float]]


def _limits_again(
    verification: Verification, target: TargetReport, record: RunRecord, recipe: Recipe
) -> _Limits:
    """Return the limits that a verification's figures are judged by, where they are not simply the
    recipe's: by what float32 resolves, by what a type makes of the original, or, for rows that are
    equal throughout in low precision, by none.
    """
    if not {each.stage for each in target.verifications} <= {each.id for each in record.stages}:
        return {}  # a contradiction of its own
    judged = rejudge_record(dataclasses.replace(record, targets=(target,)), recipe).targets[0]
    return {
        (case.case, output.output): output.limits
        for case in judged.verifications[target.verifications.index(verification)].cases
        for output in case.outputs
    }


def _verification(
    target: TargetReport, verification: Verification, recipe: Recipe, again: Callable[[], _Limits]
) -> Iterator[tuple[str, str]]:
    place = verification.stage
    for case in verification.cases:
        yield from _case(place, case, target, recipe, again)
    wrong = [case.case for case in verification.cases if not case.passed]
    errors = sorted({finding.code for finding in verification.findings if finding.is_error})
    if verification.status == "verified" and (wrong or errors or not verification.cases):
        reasons = wrong or errors or ["it has no cases"]
        yield place, f"recorded as verified despite {', '.join(reasons)}"
    if verification.status == "failed" and verification.cases and not (wrong or errors):
        yield place, "recorded as failed, but no case failed and no finding is an error"


def _case(
    place: str,
    case: CaseVerdict,
    target: TargetReport,
    recipe: Recipe,
    again: Callable[[], _Limits],
) -> Iterator[tuple[str, str]]:
    for output in case.outputs:
        where = f"case {case.case}, {output.output}"
        for message in (*impossible_figures(output.metrics), *_misplaced(output, case, recipe)):
            yield place, f"{where}: {message}"
        found = _output(output, case.case, target, recipe, again)
        yield from ((place, f"{where}: {each}") for each in found)
    for name, size in case.sizes.items():
        axis = recipe.axes.get(name)
        if isinstance(axis, Axis) and not axis.min <= size <= axis.max:
            yield place, f"case {case.case}: {name} is {size}, outside {axis.min} to {axis.max}"
    complete = {output.name for output in recipe.outputs} == {
        output.output for output in case.outputs
    }
    passed = case.error is None and complete and all(output.passed for output in case.outputs)
    if case.passed != passed:
        word = "passed" if case.passed else "failed"
        yield place, f"case {case.case}: recorded as {word}, its outputs say otherwise"


def _misplaced(output: OutputVerdict, case: CaseVerdict, recipe: Recipe) -> Iterator[str]:
    """Compare the figures with the output's shape, if the case's sizes determine it."""
    spec = next((each for each in contract_of(recipe).outputs if each.name == output.output), None)
    if spec is None or recipe.steps is not None or recipe.parts:
        return  # calls after the first have other sizes, and so may a part
    try:
        shape = spec.concrete_shape(case.sizes)
    except DimensionError:
        return
    yield from misplaced_figures(output.metrics, shape)


def _output(
    output: OutputVerdict,
    case: str,
    target: TargetReport,
    recipe: Recipe,
    again: Callable[[], _Limits],
) -> Iterator[str]:
    """Judge an output by the limits it was judged by, if the recipe sets those, or the verdict on
    these figures does so `again`.

    Which of a tolerance's limits apply to whole numbers differs between releases, so that any of
    them will do.
    """
    asked = recipe.targets[target.name]
    limits = limits_for(recipe, asked, output.output, None)
    given = limits_of(tolerance_for(recipe, asked, output.output, None))
    subset = output.limits and output.limits.items() <= given.items()
    if not subset and output.limits not in (limits, _before_scores(limits)):
        judged = again().get((case, output.output))
        if output.limits not in (judged, _before_scores(judged)):
            yield f"judged by {_limits(output.limits)}, but the recipe says {_limits(limits)}"
            return
    limits = output.limits
    found = [each for each in problems(output.metrics, limits) if each.kind != "empty"]
    if output.passed and found:
        yield f"recorded as passed, but {found[0].message}"
    if not output.passed and not problems(output.metrics, limits):
        yield "recorded as failed, but its figures are within the tolerance"


def _before_scores(limits: dict[str, float] | None) -> dict[str, float] | None:
    """Return limits as they were before labels could follow scores, which only widens them."""
    if limits is None:
        return None
    return {name: limit for name, limit in limits.items() if name != "by_scores"}


def _limits(limits: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in limits.items()) or "no limit"


def _rejudged(record: RunRecord, recipe: Recipe) -> Iterator[Contradiction]:
    """Compare with the outcome of the whole verdict, which includes probes and invariance.

    A record lacks some of what a run's verdict could use (the branches that the original takes), so
    that only an error that the record hides is a contradiction.
    """
    for before, after in zip(record.targets, rejudge_record(record, recipe).targets, strict=True):
        for old, new in zip(before.verifications, after.verifications, strict=True):
            place = ("result.json", old.stage)
            hidden = _errors(new) - _errors(old)
            if (old.status, new.status) == ("verified", "failed"):
                yield Contradiction(place, f"{before.name} is recorded as verified, but it failed")
            if hidden:
                codes = ", ".join(sorted(hidden))
                yield Contradiction(
                    place, f"the metrics of {before.name} show {codes}, the record does not"
                )
            elif old.headline != new.headline and old.findings == new.findings:
                yield Contradiction(
                    place, f"the headline says {old.headline!r}, the figures say {new.headline!r}"
                )


def _errors(verification: Verification) -> set[str]:
    return {finding.code for finding in verification.findings if finding.is_error}


def report_differs(folder: Path, record: RunRecord) -> Iterator[Contradiction]:
    """Compare a run's report and attachments with what this convkit makes of the record."""
    shown = plain_text(folder / REPORT_NAME)
    if shown is not None and shown != render_report(record):
        yield Contradiction((REPORT_NAME, "result.json"), "the report shows a different result")
    provenance, _ = readable_provenance(folder)
    if provenance is None:
        return  # which is a problem of its own
    for name, text in attachments(record, provenance).items():
        place = f"{FOLDER}/{name}"
        if place in provenance.files and plain_text(folder / place) not in (None, text):
            yield Contradiction((place, "result.json"), "it is not what is made of this result")
