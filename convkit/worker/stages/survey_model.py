"""Works out a torch model's contract for a drafted recipe."""

import dataclasses
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Source, SurveyModelRequest, SurveyResult
from convkit.worker.cases.example_case import write_example
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.loading import LoadedModel, load_model
from convkit.worker.original.loading.python_factory import named_callable
from convkit.worker.process.one_thread import one_thread
from convkit.worker.survey.inputs.survey_messages import in_eval_mode, no_small_decoder
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.sizes.work_clock import WorkClock
from convkit.worker.survey.torch_module.cached_decoder import TASK
from convkit.worker.survey.torch_module.example_run import example_arrays
from convkit.worker.survey.torch_module.number_types import TypedModel, in_float32, type_choices
from convkit.worker.survey.torch_module.shrunk_decoder import narrow_decoder
from convkit.worker.survey.torch_module.transformers_heads import likely_task, small_overrides


def run(request: SurveyModelRequest, context: Context) -> tuple[SurveyResult, list[Finding]]:
    """Survey a model; raises StageFailedError if it does not load or run."""
    source = request.source
    context.progress("loading the model")
    if source.kind not in ("factory", "torchscript", "exported") and source.task is None:
        source = dataclasses.replace(source, task=likely_task(source))
    if request.small and source.kind == "config":
        source = _small(source)
    loaded = load_model(source)
    example = _example(request.example) if request.example is not None else loaded.example
    with_cache = source.task == TASK and example is None
    folder = context.output if request.example is not None else None
    typed, found = _surveyed(source, loaded, example, request.seconds, context, with_cache, folder)
    # Of other sources, nobody asked for training mode.
    changed = loaded.changed_by_training if source.kind == "factory" else ()
    notes = (typed.note, in_eval_mode(changed), *found.notes)
    survey = dataclasses.replace(
        found,
        notes=tuple(filter(None, notes)),
        task=source.task,
        overrides=source.overrides,
        weights=typed.weights,
    )
    if request.example is not None:
        given = in_float32(example) if typed.weights is not None else example
        arrays = example_arrays(survey.contract, typed.loaded, given)
        survey = dataclasses.replace(survey, example_bytes=write_example(context.output, arrays))
    return survey, []


def _surveyed(
    source: Source,
    loaded: LoadedModel,
    example: object,
    seconds: float,
    context: Context,
    with_cache: bool,  # noqa: FBT001 - one caller
    folder: Path | None,
) -> tuple[TypedModel, SurveyResult]:
    """Survey a model in the first types in which it runs; raises the first's StageFailedError."""
    first: StageFailedError | None = None
    clock = WorkClock()
    for typed in type_choices(source, loaded):
        given = in_float32(example) if typed.weights is not None else example
        left = max(0.0, seconds - clock())
        try:
            with one_thread():
                found = survey_module(
                    typed.loaded,
                    left,
                    context.progress,
                    given,
                    with_cache=with_cache,
                    folder=folder,
                )
        except StageFailedError as error:
            first = first or error
        else:
            return typed, found
    assert first is not None
    raise first


def _small(source: Source) -> Source:
    """Return an architecture with few layers, and of a decoder a narrow one.

    Raises StageFailedError if no narrow configuration of a decoder runs: as it is, it may have
    billions of weights.
    """
    architecture = source.identifier or ""
    if source.task == TASK:
        narrow = narrow_decoder(architecture)
        if narrow is None:
            raise StageFailedError(no_small_decoder(architecture))
        return dataclasses.replace(source, overrides=narrow)
    small = dataclasses.replace(source, overrides=small_overrides(architecture))
    try:
        load_model(small)
    except StageFailedError:
        return source
    return small


def _example(call: str) -> object:
    """Return what the user's function returns."""
    file, _, name = call.rpartition(":")
    function = named_callable(Path(file).resolve(), name, "--example")
    try:
        return function()
    except Exception as error:
        raise StageFailedError(
            f"--example: {Path(file).name}:{name} raised {type(error).__name__}: {error}"
        ) from error
