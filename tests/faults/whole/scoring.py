"""Scores what a run's headline says of a fault."""

import dataclasses

from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.protocol.findings.finding import Finding
from faults.mutants.changes import Mutation

# What findings without a search's evidence say of a graph, in the words of `Cause.kind`.
_KINDS = {
    "C108": "inputs",
    "C109": "inputs",
    "C110": "inputs",
    "C208": "outputs",
    "E239": "weight",
    "N303": "random",
    "E208": "branch",
}


@dataclasses.dataclass(frozen=True)
class WholeScore:
    """What a run said: `detected` if it failed, `placed` and `named` by its headline."""

    detected: bool
    placed: bool
    named: bool
    headline: str


def score(record: RunRecord, mutation: Mutation) -> WholeScore:
    """Score a run of a mutant."""
    wrong = [target for target in record.targets if target.status != "verified"]
    leading = [finding for target in wrong if (finding := _leading(record, target.name))]
    headline = "; ".join(target.headline for target in wrong) or "verified"
    placed = bool(leading) and all(_placed(each, mutation) for each in leading)
    named = placed and all(_kind(each) in mutation.kinds for each in leading)
    return WholeScore(bool(wrong), placed, named, headline)


def _leading(record: RunRecord, target: str) -> Finding | None:
    """Return the finding that a target's headline is made of: a stage's where nothing was
    verified.
    """
    report = next(each for each in record.targets if each.name == target)
    if report.leading is not None:
        return report.leading
    return next((each for each in record.findings if each.is_error), None)


def _placed(finding: Finding, mutation: Mutation) -> bool:
    return bool({finding.place.node, finding.place.tensor} & mutation.nodes)


def _kind(finding: Finding) -> str | None:
    return str(finding.evidence.get("kind") or _KINDS.get(finding.code))


@dataclasses.dataclass(frozen=True)
class TargetScore:
    """What a run said of one target: `named` if its headline has the fault's code and place."""

    target: str
    detected: bool
    named: bool
    headline: str


def score_code(record: RunRecord, codes: frozenset[str], place: str) -> tuple[TargetScore, ...]:
    """Score a run of a model whose code is at fault, each target by itself."""
    return tuple(_score_target(record, each, codes, place) for each in record.targets)


def _score_target(
    record: RunRecord, target: TargetReport, codes: frozenset[str], place: str
) -> TargetScore:
    if target.status == "verified":
        return TargetScore(target.name, detected=False, named=False, headline="verified")
    leading = _leading(record, target.name)
    named = (
        leading is not None
        and leading.code in codes
        and (place in leading.message or place in map(str, dataclasses.astuple(leading.place)))
    )
    return TargetScore(target.name, detected=True, named=named, headline=target.headline)
