"""Reduces a run to what later runs must match. Pure.

A baseline contains a snapshot of the accepted run; a nightly run takes its own snapshot run
and compares the two (`convkit.host.nightly.baseline_comparison`).
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

from convkit.host.audit.differences.across_processors import integer_kernels
from convkit.host.audit.differences.run_difference import recipe_keys
from convkit.host.nightly.recipe_demands import demands_of, names_model, options_of, tried_by
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.processor_record import RecordedProcessor, processor_of
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus, Verification
from convkit.protocol.json_codec import SPARSE
from convkit.protocol.messages import EvaluationMetrics
from convkit.protocol.same_fields import taken_from

# The figures that track parity. max_rel is excluded: it is dominated by elements near zero, and
# jumps by orders of magnitude while everything else is stable.
PARITY = ("max_abs", "mean_abs", "rms", "cosine")
LARGER_IS_BETTER = frozenset({"cosine"})
# The recipe keys that earlier releases compared, as written.
_WRITTEN = ("axes.", "inputs.", "outputs.", "verify.seed", "verify.texts")
_SOURCES = ("source", "original", "file")


@dataclasses.dataclass(frozen=True)
class OutputSnapshot:
    """One output: its limits by name, its worst figures over all cases, and the largest magnitude
    of the original's output; NaN in older baselines.
    """

    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    largest: float = dataclasses.field(default=math.nan, metadata=SPARSE)


@dataclasses.dataclass(frozen=True)
class ScoreSnapshot:
    """The score on the user's rows: `loss` is how much worse than the original's it is, in the
    metric's own terms (`EvaluationMetrics`); NaN without a score.
    """

    metric: str
    rows: int
    loss: float


@dataclasses.dataclass(frozen=True)
class VerificationSnapshot:
    """One target under one runtime release. `cases` are the axis sizes of each case,
    `integer_kernels` those that the figures depend on; empty if on none, and in older baselines.
    """

    status: TargetStatus
    evidence: str
    providers: tuple[str, ...] = ()
    cases: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    outputs: dict[str, OutputSnapshot] = dataclasses.field(default_factory=dict)
    integer_kernels: str = dataclasses.field(default="", metadata=SPARSE)
    score: ScoreSnapshot | None = dataclasses.field(default=None, metadata=SPARSE)


@dataclasses.dataclass(frozen=True)
class TargetSnapshot:
    """One target. `verifications` are by their ids, `options` its keys as text; None in older
    baselines.
    """

    status: TargetStatus
    headline: str
    runtime: str
    device: str
    precision: str
    size_bytes: int = 0
    verifications: dict[str, VerificationSnapshot] = dataclasses.field(default_factory=dict)
    options: dict[str, str] | None = dataclasses.field(default=None, metadata=SPARSE)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The facts that a run proved.

    `tools` are versions by stage, then by package; `verified_on` are the recipe keys that determine
    the inputs; `sources` are digests of the model and of other files, as text; `waivers` are
    the last days of the recipe's waivers, by `CODE in TARGET`; `demands` are the recipe's limits,
    empty in older baselines (`convkit.host.nightly.recipe_demands`).
    """

    recipe: str
    targets: dict[str, TargetSnapshot]
    tools: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    verified_on: dict[str, str] = dataclasses.field(default_factory=dict)
    sources: dict[str, str] = dataclasses.field(default_factory=dict)
    waivers: dict[str, str] = dataclasses.field(default_factory=dict)
    demands: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)


def snapshot_of(
    record: RunRecord, recipe: Recipe, sources: Iterable[Dependency], tools: frozenset[str]
) -> Snapshot:
    """Return the snapshot of a recipe's run; `tools` names the packages whose versions matter."""
    return Snapshot(
        recipe=record.recipe,
        targets={
            target.name: _target(target, processor_of(record.host), recipe)
            for target in record.targets
        },
        tools={
            stage.id: found
            for stage in record.stages
            if (found := {name: v for name, v in stage.versions.items() if name in tools})
        },
        verified_on=tried_by(recipe),
        sources={
            f"{item.kind} {item.name}": ", ".join(f"{a} {v}" for a, v in item.digest.items())
            for item in sources
            if item.kind in _SOURCES and item.digest
        },
        waivers={
            f"{each.code} in {target.name}": each.until
            for target in record.targets
            for each in target.waivers
        },
        demands=demands_of(recipe),
    )


def _without_models(now: Snapshot) -> Snapshot:
    kept = {key: value for key, value in now.verified_on.items() if not names_model(key)}
    return dataclasses.replace(now, verified_on=kept)


def comparable(now: Snapshot, before: Snapshot, record: RunRecord) -> Snapshot:
    """Return a run's snapshot as it compares with a baseline: those of earlier releases hold the
    recipe's keys as they were written.
    """
    if before.demands:
        return now if any(map(names_model, before.verified_on)) else _without_models(now)
    keys = recipe_keys(record).items()
    written = {key: value for key, value in keys if key.startswith(_WRITTEN)}
    return dataclasses.replace(now, verified_on=written)


def _target(target: TargetReport, processor: RecordedProcessor, recipe: Recipe) -> TargetSnapshot:
    return taken_from(
        TargetSnapshot,
        target,
        verifications={
            each.id: _verification(each, integer_kernels(target, each, processor) or "")
            for each in target.verifications
        },
        options=options_of(recipe, target.name),
    )


def _verification(verification: Verification, kernels: str) -> VerificationSnapshot:
    largest: dict[str, list[float]] = {}
    limits: dict[str, dict[str, float]] = {}
    values: dict[str, dict[str, list[float]]] = {}
    for case in verification.cases:
        for output in case.outputs:
            limits.setdefault(output.output, dict(output.limits))
            largest.setdefault(output.output, []).append(output.metrics.reference_max)
            by_name = values.setdefault(output.output, {name: [] for name in PARITY})
            for name in PARITY:
                by_name[name].append(getattr(output.metrics, name))
    return taken_from(
        VerificationSnapshot,
        verification,
        cases={case.case: dict(case.sizes) for case in verification.cases if case.error is None},
        outputs={
            name: OutputSnapshot(
                limits[name],
                {m: _worst(m, v) for m, v in by_name.items()},
                _worst("reference_max", largest[name]),
            )
            for name, by_name in values.items()
        },
        integer_kernels=kernels,
        score=_score(verification.evaluation),
    )


def _score(found: EvaluationMetrics | None) -> ScoreSnapshot | None:
    if found is None:
        return None
    return ScoreSnapshot(found.metric, found.rows, found.drop if found.error is None else math.nan)


def _worst(metric: str, values: list[float]) -> float:
    """Return the worst value; NaN if any is, since no comparison accepts it."""
    if any(math.isnan(value) for value in values):
        return math.nan
    return min(values) if metric in LARGER_IS_BETTER else max(values)


def figures(snapshot: Snapshot) -> Iterator[tuple[str, str, str, float]]:
    """Yield (target, subject, metric, value) for every figure; sizes have the target as subject."""
    for name, target in snapshot.targets.items():
        if target.size_bytes:
            yield name, name, "size_bytes", float(target.size_bytes)
        for stage, verification in target.verifications.items():
            for output, measured in verification.outputs.items():
                for metric, value in measured.figures.items():
                    yield name, f"{stage.removeprefix('verify:')} {output}", metric, value
