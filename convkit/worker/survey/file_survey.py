"""The contract of an ONNX file, with the sizes it accepts, worked out from its graph and by running
it.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from convkit.protocol.contract import Axis, Contract, Dimension, dimension_axes
from convkit.protocol.messages import SurveyResult
from convkit.worker.graph.class_labels import columns_of
from convkit.worker.graph.graph_contract import graph_contract
from convkit.worker.graph.typed_graph import inlined
from convkit.worker.runtime_interface.distinct_operators import too_old
from convkit.worker.runtime_interface.refusal_causes import with_remedy
from convkit.worker.runtime_interface.sessions import ModelRefusedError
from convkit.worker.survey.inputs.input_guesses import UNKNOWN_INTEGERS, Guess, guess_sample
from convkit.worker.survey.inputs.input_usage import (
    low_types,
    rounds_activations,
    table_rows,
    usage_of,
)
from convkit.worker.survey.inputs.survey_messages import (
    always_nan,
    chaotic,
    holds_sizes,
    map_output,
    no_start,
    refused,
)
from convkit.worker.survey.sizes.accepted_sizes import Sizing
from convkit.worker.survey.sizes.axis_names import OpenInputs, name_axes
from convkit.worker.survey.sizes.first_working_sizes import Start, find_start, start_sizes
from convkit.worker.survey.sizes.perturbed_weights import run_with_moved_weights
from convkit.worker.survey.sizes.rounding_noise import decided_by_rounding, rounding_errors
from convkit.worker.survey.sizes.size_trials import FileTrials
from convkit.worker.survey.sizes.sizes_from_values import may_follow_values
from convkit.worker.survey.values.drafted_ranges import skipping_undefined_ends, within_domains
from convkit.worker.survey.values.effective_samples import responding
from convkit.worker.survey.values.index_ranges import within_sizes, within_tables, without_markers
from convkit.worker.survey.values.mask_meaning import (
    blank_at_padding,
    is_nan_if_masked,
    skipping_nan,
    with_meanings,
)

# The size at which an axis of a file is typical, as far as its range allows.
_TYPICAL = 4


def survey(
    model: ir.Model, path: Path, seconds: float, progress: Callable[[str], None] = lambda _: None
) -> SurveyResult:
    """Return a file's inputs and outputs. `seconds` limits the time spent running it; 0: it is not
    run. `progress` receives what is tried.
    """
    stated = graph_contract(model)
    graph = inlined(model).graph
    values = {value.name: value for value in graph.inputs}
    usages = {spec.name: usage_of(values[spec.name]) for spec in stated.inputs}
    variants = [name_axes(stated.inputs, usages, tied=tied) for tied in (True, False)]
    guesses = {spec.name: guess_sample(spec, usages[spec.name]) for spec in variants[0].inputs}
    notes = [f"only you can know {guess.doubt}" for guess in guesses.values() if guess.doubt]
    notes += [
        map_output(value.name or "", classes)
        for value in graph.outputs
        if (classes := columns_of(value.doc_string)) is not None
    ]
    if seconds <= 0:
        return _unrun(stated, variants[0], guesses, notes)
    try:
        trials = FileTrials(path, seconds, progress)
    except ModelRefusedError as error:
        old = too_old(model.opset_imports.get(""))
        notes += [refused(with_remedy(error)), *([old] if old is not None else [])]
        return _unrun(stated, variants[0], guesses, notes)
    opened, start = _first_start(variants, guesses, trials)
    if start.reason and trials.saw_nan:
        notes.append(always_nan(start.reason))
        trials.accept_nan()
        opened, start = _first_start(variants, guesses, trials)
    if start.reason:
        return _unrun(stated, opened, guesses, [*notes, no_start(start.reason)])
    if start.holding:
        notes.append(holds_sizes(start.holding))
    unknown = [name for name, each in start.samples.items() if each == UNKNOWN_INTEGERS]
    start = within_tables(within_sizes(start, unknown, trials), table_rows(graph), trials)
    start = with_meanings(start, trials)
    follow = may_follow_values(graph)
    sizing = Sizing(stated.outputs, opened.roles, start, trials, notes, may_follow_values=follow)
    is_nan = is_nan_if_masked(start, trials)  # while the longest run is a short one
    found = sizing.run()
    found = blank_at_padding(skipping_nan(found) if is_nan else found, trials)
    found = without_markers(found, trials)
    found = within_domains(responding(found, guesses, trials), trials)
    found = skipping_undefined_ends(found, trials)
    trials.say("measuring how much rounding alone changes the outputs", now=True)
    quantized = rounds_activations(graph)
    moved = run_with_moved_weights(path, graph) if quantized else None
    rounding = rounding_errors(found.contract, found.samples, trials, moved)
    decided = decided_by_rounding(found.contract, found.samples, trials)
    return dataclasses.replace(
        found,
        notes=(*found.notes, *(chaotic(name) for name, each in rounding.items() if each.decides)),
        quantized=quantized,
        computes_in=low_types(graph),
        rounding=rounding,
        flips=decided.flips,
        counted=decided.counted,
        # The runs for the rounding errors count, too.
        magnitudes=trials.magnitudes,
        faintest=trials.faintest,
    )


def _first_start(
    variants: Sequence[OpenInputs], guesses: Mapping[str, Guess], trials: FileTrials
) -> tuple[OpenInputs, Start]:
    """Return the first variant of the axes with which the file runs, and how; otherwise the first
    of all, and why not.
    """
    tried = []
    for opened in variants:
        tried.append((opened, find_start(opened, guesses, trials)))
        if not tried[-1][1].reason:
            return tried[-1]
    return tried[0]


def described(model: ir.Model, contract: Contract) -> SurveyResult:
    """Return the contract stored in a file, with samples for its inputs and typical sizes, which
    the file does not have.
    """
    values = {value.name: value for value in inlined(model).graph.inputs}
    samples = {
        spec.name: guess_sample(spec, usage_of(values[spec.name])).sample
        for spec in contract.inputs
        if spec.name in values
    }
    axes = tuple(
        dataclasses.replace(axis, typical=min(axis.max, max(axis.min, _TYPICAL)))
        for axis in contract.axes
    )
    return SurveyResult(dataclasses.replace(contract, axes=axes), samples, ran=False)


def _unrun(
    stated: Contract, opened: OpenInputs, guesses: Mapping[str, Guess], notes: Sequence[str]
) -> SurveyResult:
    """Return what the graph alone reveals; sizes are guesses."""
    sizes = next(start_sizes(opened))
    axes = tuple(Axis(name, size, size, size) for name, size in sizes.items())
    known = set(sizes)

    def dimension(place: int, size: Dimension) -> Dimension:
        if isinstance(size, int):
            return max(size, 1)
        used = dimension_axes(size) if size.isidentifier() else ()
        if used and set(used) <= known:
            return size
        return "batch" if place == 0 and "batch" in known else 1

    outputs = tuple(
        dataclasses.replace(
            spec, shape=tuple(dimension(place, size) for place, size in enumerate(spec.shape))
        )
        for spec in stated.outputs
    )
    samples = {name: guess.sample for name, guess in guesses.items()}
    return SurveyResult(
        Contract(opened.inputs, outputs, axes), samples, ran=False, notes=tuple(notes)
    )
