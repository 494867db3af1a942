"""Works out a torch model's contract for a drafted recipe."""

import dataclasses
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Source, SurveyModelRequest, SurveyResult
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.python_factory import named_callable
from convkit.worker.survey.inputs.survey_messages import no_small_decoder
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.torch_module.cached_decoder import TASK
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
    found = survey_module(
        loaded,
        request.seconds,
        context.progress,
        example,
        with_cache=source.task == TASK and example is None,
    )
    return dataclasses.replace(found, task=source.task, overrides=source.overrides), []


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
