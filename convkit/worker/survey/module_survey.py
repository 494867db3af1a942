"""The contract of a torch module, with the sizes it accepts, worked out by running it and by
tracing it as the export will.
"""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from convkit.protocol.messages import SurveyResult
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.exporters.traceable_layers import attention_in_parts
from convkit.worker.original.loading.archive_as_module import ScriptArchive
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.inputs.layer_hints import convolves, layers_of
from convkit.worker.survey.inputs.survey_messages import cache_left_out
from convkit.worker.survey.sizes.accepted_sizes import Sizing
from convkit.worker.survey.sizes.batch_axis import BATCH, batch_notes
from convkit.worker.survey.sizes.rounding_noise import decided_by_rounding
from convkit.worker.survey.sizes.smallest_for_all_values import running_with_all_values
from convkit.worker.survey.sizes.unread_sizes import without_unread
from convkit.worker.survey.sizes.work_clock import WorkClock
from convkit.worker.survey.torch_module.cached_decoder import NotCachedError, survey_cached
from convkit.worker.survey.torch_module.example_run import example_arrays, example_run
from convkit.worker.survey.torch_module.exporter_choice import exportable, obstacle_of
from convkit.worker.survey.torch_module.first_call import first_run
from convkit.worker.survey.torch_module.fractional_inputs import with_fractions
from convkit.worker.survey.torch_module.held_batch import why_fixed
from convkit.worker.survey.torch_module.input_candidates import ROLES
from convkit.worker.survey.torch_module.meant_numbers import with_meant_numbers
from convkit.worker.survey.torch_module.module_trials import ModuleTrials
from convkit.worker.survey.torch_module.number_types import float64_note, low_weights
from convkit.worker.survey.torch_module.unequal_lengths import untied
from convkit.worker.survey.values.drafted_ranges import (
    skipping_undefined_ends,
    within_domains,
    without_open_columns,
)
from convkit.worker.survey.values.index_ranges import FEW, within_tables, without_markers
from convkit.worker.survey.values.mask_meaning import (
    is_nan_if_masked,
    skipping_nan,
    unequal_at_padding,
    with_lengths,
    with_meanings,
)

# Of the time for a survey; the rest is for exporters.
_SHARE_OF_SIZES = 0.5


def survey_module(
    loaded: LoadedModel,
    seconds: float,
    progress: Callable[[str], None],
    example: Any = None,  # noqa: ANN401 - whatever the user's function returns
    *,
    with_cache: bool = False,
    folder: Path | None = None,
) -> SurveyResult:
    """Return a model's inputs and outputs, which it runs with and torch.export keeps open.

    `example` are one call's inputs; without, they are worked out. `seconds` limits the time spent
    on sizes and, with what is left of it, on exporters. `with_cache`: a
    decoder's contract has its cache if that is possible. `folder`: where an example's values may be
    kept, if the model runs with no others. Raises StageFailedError if no inputs are
    found, or the example's do not run.
    """
    clock = WorkClock()
    trials = ModuleTrials(loaded, seconds * _SHARE_OF_SIZES, progress, clock)
    progress("looking for inputs that the model runs with")
    start = (
        first_run(loaded, trials)
        if example is None
        else example_run(loaded, example, trials, folder)
    )
    if not loaded.of_transformers:  # what transformers' models expect is known
        tables = [each.width for each in layers_of(loaded.module) if each.columns]
        start = within_tables(start, [*tables, FEW], trials)
        start = with_meant_numbers(start, trials)
        if example is None:
            start = with_fractions(start, loaded, trials)
        start = with_lengths(with_meanings(untied(start, trials), trials), trials)
    guessed = example is None and not loaded.of_transformers
    notes = [*start.notes]
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
    is_nan = is_nan_if_masked(start, trials)  # while the longest run is a short one
    found = without_open_columns(sizing.run())
    given = example_arrays(found.contract, loaded, example) if example is not None else {}
    found = without_markers(skipping_nan(found) if is_nan else found, trials, given)
    if not loaded.of_transformers:
        with trials.exactly():  # on shapes alone, any index will do
            found = running_with_all_values(found, trials)
    if BATCH in start.sizes and not _is_open(found, BATCH):
        why = why_fixed(loaded, start, trials)
        found = dataclasses.replace(found, notes=(*found.notes, why))
    if example is not None:
        found = without_unread(found, trials)
    found = unequal_at_padding(found, trials, attention_in_parts())
    found = skipping_undefined_ends(within_domains(found, trials), trials)
    decided = decided_by_rounding(found.contract, found.samples, trials, clock)
    double = float64_note(
        loaded,
        found.contract,
        trials.drawn(start.inputs, start.samples, start.sizes, Draw("example")),
    )
    found = dataclasses.replace(
        found,
        flips=decided.flips,
        counted=decided.counted,
        rounding=decided.rounding,
        computes_in=low_weights(loaded.module),
        convolves=convolves(loaded.module),
        notes=(*found.notes, *filter(None, [double])),
        axis_notes=batch_notes(start, trials),
        guessed=guessed,
    )
    if isinstance(loaded.module, ScriptArchive):
        return found  # its exporter reads the code and traces nothing
    return exportable(loaded, found, progress, seconds, trials.longest, clock)


def _is_open(found: SurveyResult, axis: str) -> bool:
    return any(
        axis == each.name or axis in each.name.split("_div_") for each in found.contract.axes
    )


def _traceable(
    loaded: LoadedModel, survey: SurveyResult, progress: Callable[[str], None]
) -> SurveyResult:
    """Return a contract that torch.export keeps open; raises NotCachedError if it does not."""
    obstacle = obstacle_of(loaded, survey, progress)
    if obstacle is None:
        return survey
    kept = f" (the size of {obstacle.axis.name})" if obstacle.axis is not None else ""
    raise NotCachedError(f"torch.export cannot trace the model with it{kept}: {obstacle.reason}")
