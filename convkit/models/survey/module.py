"""The contract of a torch module, with the sizes it accepts, worked out by running it and by
tracing it as the export will.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from convkit.models.exporters.dynamic_trace import trace
from convkit.models.exporters.job import UnexportableError
from convkit.models.sources.contract_module import ContractModule
from convkit.models.sources.loaded import LoadedModel
from convkit.models.sources.probe import Examples, probe
from convkit.models.sources.script_archive import ScriptArchive
from convkit.models.survey.cached_decoder import NotCachedError, survey_cached
from convkit.models.survey.candidates import ROLES
from convkit.models.survey.first_run import example_run, first_run
from convkit.models.survey.mask_meaning import skipping_nan, with_meanings
from convkit.models.survey.module_trials import ModuleTrials
from convkit.models.survey.sizing import Sizing
from convkit.models.survey.wording import cache_left_out, exported_fixed, not_exportable, tried_out
from convkit.tensors import Axis, Contract, TensorSpec, dimension_axes, dimension_size
from convkit.worker.context import StageFailedError
from convkit.worker.protocol import SurveyResult


def survey_module(
    loaded: LoadedModel,
    seconds: float,
    progress: Callable[[str], None],
    example: Any = None,  # noqa: ANN401 - whatever the user's function returns
    *,
    with_cache: bool = False,
) -> SurveyResult:
    """Return a model's inputs and outputs, which it runs with and torch.export keeps open.

    `example` are one call's inputs; without, they are worked out. `seconds` limits the time spent
    on sizes. `with_cache`: a decoder's contract has its cache if that is possible. Raises
    StageFailedError if no inputs are found, or the example's do not run.
    """
    trials = ModuleTrials(loaded, seconds, progress)
    progress("looking for inputs that the model runs with")
    start = first_run(loaded, trials) if example is None else example_run(loaded, example, trials)
    if loaded.config is None:  # what the masks of transformers' models mean is known
        start = with_meanings(start, trials)
    guessed = example is None and loaded.config is None
    notes = [tried_out([spec.name for spec in start.inputs])] if guessed else []
    if with_cache:
        progress("calling the decoder with its cache")
        try:
            return _traceable(loaded, survey_cached(loaded, start), progress)
        except NotCachedError as error:
            notes.append(cache_left_out(str(error)))
    # The second sequence of an example is called sequence_2.
    roles = {axis: ROLES.get(re.sub(r"_\d+$", "", axis), "") for axis in start.sizes}
    progress("trying other sizes")
    sizing = Sizing(trials.outputs, roles, start, trials, notes, expects_fixed=True)
    found = skipping_nan(sizing.run(), start, trials)
    if isinstance(loaded.module, ScriptArchive):
        return found  # its exporter reads the code and traces nothing
    return _exportable(loaded, found, progress)


def _traceable(
    loaded: LoadedModel, survey: SurveyResult, progress: Callable[[str], None]
) -> SurveyResult:
    """Return a contract that torch.export keeps open; raises NotCachedError if it does not."""
    progress("tracing the model as the export will")
    reason, axis = _obstacle(loaded, survey)
    if not reason:
        return survey
    kept = f" (the size of {axis.name})" if axis is not None else ""
    raise NotCachedError(f"torch.export cannot trace the model with it{kept}: {reason}")


def _exportable(
    loaded: LoadedModel, survey: SurveyResult, progress: Callable[[str], None]
) -> SurveyResult:
    """Narrow the axes that torch.export does not keep open, one at a time."""
    while True:
        progress("tracing the model as the export will")
        reason, axis = _obstacle(loaded, survey)
        if not reason:
            return survey
        if axis is None:
            return dataclasses.replace(survey, notes=(*survey.notes, not_exportable(reason)))
        contract, notes = survey.contract, survey.notes
        if 2 * axis.min < axis.typical:
            # Small sizes leave a single element somewhere inside, which torch.export fixes.
            contract = _from(contract, axis, axis.typical // 2)
        else:
            contract = _fixed(contract, axis)
            notes = (*notes, exported_fixed(axis.name, axis.typical, reason))
        survey = dataclasses.replace(survey, contract=contract, notes=notes)


def _obstacle(loaded: LoadedModel, survey: SurveyResult) -> tuple[str, Axis | None]:
    """Return why the model cannot be traced, and the axis to fix for it; ("", None) if it can."""
    contract = survey.contract
    named: set[str] = set()
    try:
        module = ContractModule(loaded, contract)
        found = probe(module, Examples(contract, survey.samples, 0, loaded))
        if found.outputs is None or found.findings:
            return " ".join(finding.message for finding in found.findings), None
        trace(module, found.inputs, contract, loaded.source_root)
    except UnexportableError as error:
        named = {finding.place.tensor for finding in error.findings if finding.place.tensor}
        reason = str(error)
    except StageFailedError as error:
        reason = str(error)
    else:
        return "", None
    # The axes of time and space come last; the batch goes only if it is named or alone.
    blamed = [axis for axis in contract.axes if axis.name in named]
    return reason, next(reversed(blamed or contract.axes), None)


def _from(contract: Contract, axis: Axis, low: int) -> Contract:
    """Return a contract in which an axis begins at a larger size."""
    axes = tuple(
        dataclasses.replace(each, min=low) if each.name == axis.name else each
        for each in contract.axes
    )
    return dataclasses.replace(contract, axes=axes)


def _fixed(contract: Contract, axis: Axis) -> Contract:
    """Return a contract in which an axis has its typical size."""

    def fixed(spec: TensorSpec) -> TensorSpec:
        shape = tuple(
            _with_size(size, axis.name, axis.typical) if isinstance(size, str) else size
            for size in spec.shape
        )
        return dataclasses.replace(spec, shape=shape)

    return dataclasses.replace(
        contract,
        inputs=tuple(map(fixed, contract.inputs)),
        outputs=tuple(map(fixed, contract.outputs)),
        axes=tuple(each for each in contract.axes if each.name != axis.name),
    )


def _with_size(text: str, axis: str, size: int) -> int | str:
    used = dimension_axes(text)
    if axis not in used:
        return text
    if set(used) == {axis}:
        return dimension_size(text, {axis: size})
    return re.sub(rf"\b{axis}\b", str(size), text)
