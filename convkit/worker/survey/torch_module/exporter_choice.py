"""Which exporter keeps a surveyed contract, and what has to be given up if none does."""

import contextlib
import dataclasses
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from convkit.protocol.contract import Axis, Contract, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.exporters import torch_exporter
from convkit.worker.exporters.dynamic_trace import recurrent_modules, trace
from convkit.worker.exporters.export_job import ExportJob, UnexportableError
from convkit.worker.exporters.open_sizes.recurrent_layers import open_steps
from convkit.worker.exporters.torchscript_alternative import prove_torchscript
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.contract_probe import Examples, probe
from convkit.worker.original.probing.torch_comparisons import find_decisions
from convkit.worker.original.probing.value_branches import value_dependent_lines
from convkit.worker.survey.inputs.survey_messages import (
    contradicted_axis,
    export_unfinished,
    export_untried,
    exported_fixed,
    fixed_for_all,
    not_exportable,
    torchscript_instead,
    unrolls_steps,
)
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.torch_module.recurrent_steps import recurrent_steps

# A recipe's default. Which operators can be translated hardly depends on it.
_OPSET = 18
# Runs of the model that an attempt takes: probes, traces, and the proof.
_RUNS_OF_AN_EXPORT = 4
# Weights of a model that is exported whole for a draft; of a larger one, only the trace is tried.
_MOST_WEIGHTS = 50_000_000
# Steps of recurrent layers that torch's exporter writes out within seconds.
_MOST_STEPS = 64


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """Why torch's exporter cannot keep a contract, and the axis to fix for it, if that may help.
    `codes` are those of its findings. `is_recurrent`: it unrolls recurrent layers.
    """

    reason: str
    axis: Axis | None
    codes: frozenset[str] = frozenset()
    is_recurrent: bool = False


def exportable(
    loaded: LoadedModel,
    survey: SurveyResult,
    progress: Callable[[str], None],
    until: float = math.inf,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> SurveyResult:
    """Return a survey that an exporter keeps: torch's if it can, else TorchScript's if its graph
    matches the original, else torch's with fewer open axes, which are given up one at a time. Of
    recurrent layers, which torch unrolls over every axis, TorchScript's may keep all axes but one.

    First, axes are given up of which an output has other sizes than was found. No attempt begins
    after `until`, of the clock, nor one that would take longer than that if the model takes
    `seconds` a run. Where recurrent layers take many steps, TorchScript's exporter is the first.
    """

    def is_late() -> bool:
        return clock() + _RUNS_OF_AN_EXPORT * seconds > until

    survey = _without_contradictions(loaded, survey)
    if is_late():
        return dataclasses.replace(survey, notes=(*survey.notes, export_untried(seconds)))
    open_survey = survey  # with the axes that TorchScript's exporter may keep
    if (steps := _steps(loaded, survey)) > _MOST_STEPS:
        unrolled = Obstacle(unrolls_steps(steps), None, is_recurrent=True)
        for kept in _for_torchscript(survey, unrolled):
            if not is_late() and _torchscript_keeps(loaded, kept, unrolled, progress):
                return kept
    narrowed: set[str] = set()
    while (obstacle := obstacle_of(loaded, survey, progress)) is not None:
        axis = obstacle.axis
        if is_late():
            return _given_up(survey, obstacle)
        narrow = axis is not None and axis.name not in narrowed and 2 * axis.min < axis.typical
        if axis is not None and narrow and not obstacle.is_recurrent:
            narrowed.add(axis.name)
            # Small sizes leave a single element somewhere inside, which torch.export fixes.
            survey = dataclasses.replace(
                survey, contract=_from(survey.contract, axis, axis.typical // 2)
            )
            continue
        for kept in _for_torchscript(open_survey, obstacle):
            if not is_late() and _torchscript_keeps(loaded, kept, obstacle, progress):
                return kept
        if axis is None:
            notes = (*survey.notes, not_exportable(obstacle.reason))
            return dataclasses.replace(survey, notes=notes)
        notes = (*survey.notes, exported_fixed(axis.name, axis.typical, obstacle.reason))
        survey = dataclasses.replace(_fixed(survey, axis), notes=notes)
        open_survey = _fixed(open_survey, axis)
    return survey


def _steps(loaded: LoadedModel, survey: SurveyResult) -> int:
    """Return the steps of the model's recurrent layers at its usual sizes."""
    if not recurrent_modules(loaded.module):
        return 0
    with contextlib.suppress(StageFailedError), _job(loaded, survey) as job:
        return recurrent_steps(job.module, job.examples.draw(survey.contract.typical_sizes()))
    return 0


def _without_contradictions(loaded: LoadedModel, survey: SurveyResult) -> SurveyResult:
    """Return a survey whose outputs are those of the model at the export's sizes too, with as few
    axes fixed as that takes; as it is if that does not help. If the time ran out, the sizes that an
    output was seen to have may be those of few runs.
    """
    kept, reason = survey, _contradiction(loaded, survey)
    while reason:
        trials = [_fixed(kept, axis) for axis in reversed(kept.contract.axes)]
        if not trials:
            return survey
        number = next((n for n, each in enumerate(trials) if not _contradiction(loaded, each)), 0)
        axis = kept.contract.axes[-1 - number]
        notes = (*kept.notes, contradicted_axis(axis.name, axis.typical, reason))
        kept = dataclasses.replace(trials[number], notes=notes)
        reason = _contradiction(loaded, kept)
    return kept


def _contradiction(loaded: LoadedModel, survey: SurveyResult) -> str:
    """Return what of a survey's outputs the model contradicts; nothing if it does not."""
    try:
        with _job(loaded, survey) as job:
            findings = job.probe.findings if job.probe.outputs is not None else ()
    except StageFailedError:
        return ""
    return " ".join(finding.message for finding in findings if finding.code == "C207")


def _given_up(survey: SurveyResult, obstacle: Obstacle) -> SurveyResult:
    """Return a survey as far as there was time: without the axis that was in the way last."""
    axis = obstacle.axis
    notes = (*survey.notes, export_unfinished(obstacle.reason, axis.name if axis else None))
    left = survey if axis is None else _fixed(survey, axis)
    return dataclasses.replace(left, notes=notes)


def _for_torchscript(survey: SurveyResult, obstacle: Obstacle) -> Iterator[SurveyResult]:
    """Yield what TorchScript's exporter may keep: everything, then all axes but one."""
    notes = (*survey.notes, torchscript_instead(obstacle.reason))
    yield dataclasses.replace(survey, exporter="torchscript", notes=notes)
    for axis in survey.contract.axes if obstacle.is_recurrent else ():
        left = (*notes, fixed_for_all(axis.name, axis.typical))
        yield dataclasses.replace(_fixed(survey, axis), exporter="torchscript", notes=left)


def obstacle_of(
    loaded: LoadedModel, survey: SurveyResult, progress: Callable[[str], None]
) -> Obstacle | None:
    """Return what keeps torch's exporter from a surveyed contract; None if nothing does."""
    progress("tracing the model as the export will")
    contract = survey.contract
    named: set[str] = set()
    codes: set[str] = set()
    is_recurrent = False
    try:
        with _job(loaded, survey) as job:
            found = job.probe
            if found.outputs is None or found.findings:
                return Obstacle(" ".join(finding.message for finding in found.findings), None)
            if sum(each.numel() for each in job.module.parameters()) > _MOST_WEIGHTS:
                with open_steps():
                    trace(job.module, found.inputs, contract, loaded.source_root)
            else:
                torch_exporter.export(job)
    except UnexportableError as error:
        if any(finding.code == "V103" for finding in error.findings) and (
            lacks := _lacks_operator(loaded, survey, str(error), progress)
        ):
            return lacks
        named = {finding.place.tensor for finding in error.findings if finding.place.tensor}
        codes = {finding.code for finding in error.findings}
        is_recurrent = any(finding.evidence.get("recurrent") for finding in error.findings)
        reason = str(error)
    except StageFailedError as error:
        reason = str(error)
        if (unknown := torch_exporter.untranslated(job, reason)) is not None:
            reason = unknown.message
            if lacks := _lacks_operator(loaded, survey, reason, progress):
                return lacks
    else:
        return None
    # The axes of time and space come last; the batch goes only if it is named or alone.
    blamed = [axis for axis in contract.axes if axis.name in named]
    others = [axis for axis in contract.axes if axis.name != BATCH]
    axis = next(reversed(blamed or others or contract.axes), None)
    return Obstacle(reason, axis, frozenset(codes), is_recurrent)


def _lacks_operator(
    loaded: LoadedModel, survey: SurveyResult, reason: str, progress: Callable[[str], None]
) -> Obstacle | None:
    """Return the obstacle of an operator that torch's exporter does not translate with every axis
    fixed either, so that no axis is given up for it; None if fixed axes help.
    """
    fixed = survey
    for axis in survey.contract.axes:
        fixed = _fixed(fixed, axis)
    if survey.contract.axes and obstacle_of(loaded, fixed, progress) is None:
        return None
    return Obstacle(reason, None, frozenset({"V103"}))


def _torchscript_keeps(
    loaded: LoadedModel, survey: SurveyResult, obstacle: Obstacle, progress: Callable[[str], None]
) -> bool:
    """Return True if TorchScript's exporter keeps a contract, and its graph matches the original.

    A trace follows one side of a branch on values, so a model that has one is left out; what
    torch.export says of sizes is no such branch.
    """
    about_sizes = bool(obstacle.codes) and "E305" not in obstacle.codes
    progress("trying TorchScript's exporter")
    root = loaded.source_root
    try:
        with _job(loaded, survey) as job:
            if job.probe.outputs is None:
                return False
            if not about_sizes and value_dependent_lines(job.module, job.probe.inputs, root):
                return False
            drawn, sizes = job.examples.draw, job.probe.sizes
            decisions, _ = find_decisions(job.module, drawn, job.contract, sizes, root)
            return prove_torchscript(job, decisions) is not None
    except StageFailedError:
        return False


@contextlib.contextmanager
def _job(loaded: LoadedModel, survey: SurveyResult) -> Iterator[ExportJob]:
    """Yield the export of a surveyed contract; raises StageFailedError if the model does not run
    with it.
    """
    module = ContractModule(loaded, survey.contract)
    examples = Examples(survey.contract, survey.samples, loaded)
    found = probe(module, examples)
    with tempfile.TemporaryDirectory(prefix="convkit-draft-") as scratch:
        yield ExportJob(loaded, module, examples, found, _OPSET, None, Path(scratch))


def _from(contract: Contract, axis: Axis, low: int) -> Contract:
    """Return a contract in which an axis begins at a larger size."""
    axes = tuple(
        dataclasses.replace(each, min=low) if each.name == axis.name else each
        for each in contract.axes
    )
    return dataclasses.replace(contract, axes=axes)


def _fixed(survey: SurveyResult, axis: Axis) -> SurveyResult:
    """Return a survey in which an axis has its typical size."""

    def fixed(spec: TensorSpec) -> TensorSpec:
        shape = tuple(
            _with_size(size, axis.name, axis.typical) if isinstance(size, str) else size
            for size in spec.shape
        )
        return dataclasses.replace(spec, shape=shape)

    contract = survey.contract
    narrowed = dataclasses.replace(
        contract,
        inputs=tuple(map(fixed, contract.inputs)),
        outputs=tuple(map(fixed, contract.outputs)),
        axes=tuple(each for each in contract.axes if each.name != axis.name),
    )
    samples = _samples_at(survey.samples, axis)
    return dataclasses.replace(survey, contract=narrowed, samples=samples)


def _samples_at(samples: Mapping[str, Sample], axis: Axis) -> dict[str, Sample]:
    """Return samples whose lengths are those of an axis at its typical size."""
    return {
        name: dataclasses.replace(sample, along=_with_size(sample.along, axis.name, axis.typical))
        if isinstance(sample.along, str)
        else sample
        for name, sample in samples.items()
    }


def _with_size(text: str, axis: str, size: int) -> int | str:
    used = dimension_axes(text)
    if axis not in used:
        return text
    if set(used) == {axis}:
        return dimension_size(text, {axis: size})
    return re.sub(rf"\b{axis}\b", str(size), text)
