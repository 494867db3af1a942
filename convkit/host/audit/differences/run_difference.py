"""`convkit diff`: how two runs differ, in their results and their provenance."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from convkit.host.audit.differences.across_processors import (
    WITHIN_ROUNDING,
    Processors,
    Relation,
    counterpart,
    integer_kernels,
    output_relation,
    outputs_of,
    whole_outputs,
)
from convkit.host.audit.differences.built_file_difference import (
    Comparing,
    Description,
    describe_built,
)
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.audit.past_runs.run_search import recorded_files
from convkit.host.plan.stage_keys import flatten
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.record.display_text import first_line
from convkit.host.record.headroom import problems_of
from convkit.host.record.origin_files import GOLDEN
from convkit.host.record.processor_record import processor_of
from convkit.host.record.provenance import FileDigest, Provenance
from convkit.host.record.run_record import RunRecord, TargetReport, Verification
from convkit.host.record.run_summary import located_findings
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import digest_file
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Likeness
from convkit.protocol.metrics.limit_kinds import Metric
from convkit.protocol.metrics.metric_registry import DEFAULTS, METRICS

# Relative difference up to which two figures are equal: the sums of a metric have 16 digits.
_LAST_DIGITS = 1e-12


@dataclasses.dataclass(frozen=True)
class RunChange:
    """A value by its dotted path; None if a run does not have it."""

    path: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True)
class ToolChange:
    """A package whose version differs, in stages that both runs have."""

    package: str
    before: str | None
    after: str | None
    stages: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FileChange:
    """A built file that differs: its digests (None if missing) and a description."""

    path: str
    before: str | None
    after: str | None
    description: tuple[str, ...] = ()
    likeness: Likeness | None = None


@dataclasses.dataclass(frozen=True)
class RunFigure:
    """A figure of a case in both runs: a metric by its name, or `seconds`.

    `ratio` is after / before.
    """

    target: str
    case: str
    output: str | None
    metric: str
    before: float | None
    after: float | None
    ratio: float | None


@dataclasses.dataclass(frozen=True)
class FindingEntry:
    """A finding, and the targets or stages that show it."""

    code: str
    severity: str
    message: str
    place: str
    where: tuple[str, ...]


# WITHIN_ROUNDING: recorded on another processor, and equal within rounding; neither the same nor
# different.
RunRelation = Literal["SAME", "WITHIN_ROUNDING", "DIFFERENT"]


@dataclasses.dataclass(frozen=True)
class RunDifference:
    """How two runs differ. `surroundings` and `latencies` are informational: they do not count as
    different results. Nor do `rounding`, metrics that are equal within rounding because another
    processor recorded them, and `incomparable`, those of other integer kernels.
    """

    a: str
    b: str
    recipe: tuple[RunChange, ...]
    sources: tuple[RunChange, ...]
    contract: tuple[RunChange, ...]
    tools: tuple[ToolChange, ...]
    locks: tuple[RunChange, ...]
    built: tuple[FileChange, ...]
    metrics: tuple[RunFigure, ...]
    verdicts: tuple[RunChange, ...]
    new_findings: tuple[FindingEntry, ...]
    gone_findings: tuple[FindingEntry, ...]
    same_findings: tuple[FindingEntry, ...]
    surroundings: tuple[RunChange, ...]
    latencies: tuple[RunFigure, ...]
    rounding: tuple[RunFigure, ...] = ()
    incomparable: tuple[RunFigure, ...] = ()
    elsewhere: bool = False

    @property
    def same(self) -> bool:
        """True if the runs agree in everything but time and machine."""
        return self.relation != "DIFFERENT"

    @property
    def relation(self) -> RunRelation:
        """How the second run compares with the first."""
        inputs = (self.recipe, self.sources, self.contract, self.tools, self.locks)
        outcome = (self.metrics, self.verdicts, self.new_findings, self.gone_findings)
        # Weights within epsilon (STRUCTURAL) are computed ones, such as folded constants.
        near = self.elsewhere and all(
            file.likeness in ("BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL")
            for file in self.built
        )
        if any(inputs) or any(outcome) or (self.built and not near):
            return "DIFFERENT"
        return WITHIN_ROUNDING if self.built or self.rounding or self.incomparable else "SAME"


def compare_runs(
    folder_a: Path, folder_b: Path, comparing: Comparing | None = None
) -> RunDifference:
    """Return how the second run differs from the first; raises ConvkitError if a record cannot be
    read.

    `comparing` provides environments that read differing models; without it, their bytes are
    compared.
    """
    a, b = read_record(folder_a), read_record(folder_b)
    found_a, found_b = _findings(a), _findings(b)
    figures, latencies = _figures(a, b)
    processors = Processors(processor_of(a.host), processor_of(b.host))
    kinds = _relations(a, b, processors) if processors.differ else {}
    by_relation: dict[Relation, list[RunFigure]] = {}
    for figure in figures:
        place = (figure.target, figure.case, figure.output)
        by_relation.setdefault(kinds.get(place, "different"), []).append(figure)
    return RunDifference(
        a=f"{a.recipe}/{a.id}",
        b=f"{b.recipe}/{b.id}",
        recipe=_changes(recipe_keys(a), recipe_keys(b)),
        sources=_source_changes(folder_a, folder_b),
        contract=_changes(flatten(encode(a.contract)), flatten(encode(b.contract))),
        tools=_tools(a, b),
        locks=_changes(_lock_digests(folder_a), _lock_digests(folder_b)),
        built=_built(folder_a, folder_b, comparing),
        metrics=tuple(by_relation.get("different", ())),
        verdicts=_changes(_verdicts(a), _verdicts(b)),
        new_findings=tuple(entry for key, entry in found_b.items() if key not in found_a),
        gone_findings=tuple(entry for key, entry in found_a.items() if key not in found_b),
        same_findings=tuple(entry for key, entry in found_b.items() if key in found_a),
        surroundings=_changes(_surroundings(a), _surroundings(b)),
        latencies=latencies,
        # Equal errors beside other relative ones: those are decided by elements near zero.
        rounding=(*by_relation.get("equal", ()), *by_relation.get(WITHIN_ROUNDING, ())),
        incomparable=tuple(by_relation.get("incomparable", ())),
        elsewhere=processors.differ,
    )


def _relations(
    a: RunRecord, b: RunRecord, processors: Processors
) -> dict[tuple[str, str, str | None], Relation]:
    """Return how the outputs of two runs on different processors compare, by the target, case and
    output that name their figures.
    """
    found: dict[tuple[str, str, str | None], Relation] = {}
    whole = whole_outputs(a.contract)
    later = {each.id: (target, each) for target in b.targets for each in target.verifications}
    for target in a.targets:
        for verification in target.verifications:
            mine = integer_kernels(target, verification, processors.before)
            same = counterpart(verification.id, mine, later)
            if same is None:
                continue
            other_target, other = later[same]
            is_other = mine != integer_kernels(other_target, other, processors.now)
            theirs = outputs_of(other)
            for key, metrics in outputs_of(verification).items():
                if key in theirs:
                    found[_name(target, verification), *key] = (
                        "incomparable"
                        if is_other
                        else output_relation(metrics, theirs[key], whole=key[1] in whole)
                    )
    return found


def _name(target: TargetReport, verification: Verification) -> str:
    """Return a target's name as its figures have it: with the runtime's release and the family of
    processors, if it has them.
    """
    return target.name + (f"@{verification.label}" if verification.label else "")


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[RunChange, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        RunChange(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def recipe_keys(record: RunRecord) -> dict[str, str]:
    """Return the recipe's keys as written, without defaults: dotted path to text."""
    return flatten(read_document(record.recipe_text, record.recipe_file).content)


def _source_changes(folder_a: Path, folder_b: Path) -> tuple[RunChange, ...]:
    """Return the sources that differ between two runs, if both have a provenance."""
    a, b = readable_provenance(folder_a)[0], readable_provenance(folder_b)[0]
    return () if a is None or b is None else _changes(_sources(a), _sources(b))


def _sources(provenance: Provenance) -> dict[str, str]:
    return {
        f"{item.kind} {item.name}": ", ".join(
            f"{name} {value}" for name, value in item.digest.items()
        )
        for item in provenance.dependencies
        if item.kind in ("source", "original", "file") and item.digest
    }


def _tools(a: RunRecord, b: RunRecord) -> tuple[ToolChange, ...]:
    used_b = {stage.id: stage.versions for stage in b.stages}
    changed: dict[tuple[str, str | None, str | None], list[str]] = {}
    for stage in a.stages:
        # A stage that did not run in one of the runs recorded no versions to compare.
        if not stage.versions or not used_b.get(stage.id):
            continue
        for change in _changes(stage.versions, used_b[stage.id]):
            changed.setdefault((change.path, change.before, change.after), []).append(stage.id)
    return tuple(
        ToolChange(*key, tuple(stages)) for key, stages in sorted(changed.items(), key=str)
    )


def _lock_digests(folder: Path) -> dict[str, str]:
    return {path.stem: digest_file(path) for path in sorted(folder.glob("locks/*.txt"))}


def _built(folder_a: Path, folder_b: Path, comparing: Comparing | None) -> tuple[FileChange, ...]:
    before, after = _models(folder_a), _models(folder_b)
    changes = _changes(
        {name: entry.sha256 for name, entry in before.items()},
        {name: entry.sha256 for name, entry in after.items()},
    )
    described = describe_built(folder_a, folder_b, [change.path for change in changes], comparing)
    return tuple(_file_change(change, described[change.path]) for change in changes)


def _file_change(change: RunChange, described: Description) -> FileChange:
    return FileChange(change.path, change.before, change.after, described.lines, described.likeness)


def _models(folder: Path) -> dict[str, FileDigest]:
    """Return the built files. Golden cases follow from the recipe's limits, too, and have no part
    in what was built.
    """
    return {
        name: entry
        for name, entry in recorded_files(folder).items()
        if name.startswith("models/") and f"/{GOLDEN}/" not in name
    }


def _figures(a: RunRecord, b: RunRecord) -> tuple[tuple[RunFigure, ...], tuple[RunFigure, ...]]:
    """Return the differing figures: metrics and case durations."""
    metrics = _metrics_that_matter((a, b))
    before, after = _all_figures(a, metrics), _all_figures(b, metrics)
    changed = [
        RunFigure(*key, before.get(key), after.get(key), _ratio(before.get(key), after.get(key)))
        for key in dict.fromkeys([*before, *after])
        if not _equal(before.get(key), after.get(key))
    ]
    return (
        tuple(figure for figure in changed if figure.metric != "seconds"),
        tuple(figure for figure in changed if figure.metric == "seconds"),
    )


_Key = tuple[str, str, str | None, str]


def _metrics_that_matter(records: Sequence[RunRecord]) -> list[Metric]:
    """Return the metrics limited by default or in either run."""
    limited = {
        name
        for record in records
        for target in record.targets
        for verification in target.verifications
        for case in verification.cases
        for output in case.outputs
        for name in output.limits
    }
    return [metric for name, metric in METRICS.items() if name in limited or name in DEFAULTS]


def _all_figures(record: RunRecord, metrics: Sequence[Metric]) -> dict[_Key, float]:
    figures: dict[_Key, float] = {}
    for target in record.targets:
        for verification in target.verifications:
            name = _name(target, verification)
            for case in verification.cases:
                figures[name, case.case, None, "seconds"] = case.seconds
                for output in case.outputs:
                    for metric in metrics:
                        key = (name, case.case, output.output, metric.name)
                        figures[key] = metric.read(output.metrics)
    return figures


def _equal(before: float | None, after: float | None) -> bool:
    if before is not None and after is not None and math.isnan(before) and math.isnan(after):
        return True
    if before is None or after is None:
        return before is after
    # Two sums of the same numbers may differ in their last digits.
    return math.isclose(before, after, rel_tol=_LAST_DIGITS, abs_tol=0.0)


def _ratio(before: float | None, after: float | None) -> float | None:
    if not before or after is None or not math.isfinite(before) or not math.isfinite(after):
        return None
    return after / before


def _verdicts(record: RunRecord) -> dict[str, str]:
    """Return the verdicts of targets, of their verifications and of their cases."""
    verdicts: dict[str, str] = {}
    for target in record.targets:
        verdicts[target.name] = target.status
        for verification in target.verifications:
            name = verification.id
            verdicts[name] = f"{verification.status} ({verification.evidence})"
            for case in verification.cases:
                broken = {
                    problem.limit or problem.kind
                    for out in case.outputs
                    for problem in problems_of(out)
                }
                why = first_line(case.error or "") or ", ".join(sorted(broken))
                verdicts[f"{name}.{case.case}"] = "passed" if case.passed else f"failed: {why}"
    return verdicts


def _findings(record: RunRecord) -> dict[tuple[str, str, str, str], FindingEntry]:
    """Return the findings by identity: code and place, without figures."""
    found: dict[tuple[str, str, str, str], FindingEntry] = {}
    for located in located_findings(record):
        finding = located.finding
        entry = FindingEntry(
            finding.code, finding.severity, finding.message, str(finding.place), located.where
        )
        for where in located.where:
            found[finding.code, finding.severity, str(finding.place), where] = dataclasses.replace(
                entry, where=(where,)
            )
    return found


def _surroundings(record: RunRecord) -> dict[str, str]:
    facts = {"convkit": record.convkit, "toolchain": record.toolchain, "host": record.host}
    return flatten(encode(facts))
