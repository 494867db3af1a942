"""Finds inputs with which a torch module runs: from one example call, or by trying."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

import torch

from convkit.protocol.contract import DimensionError, TensorSpec
from convkit.protocol.messages import Held, Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.inputs.layer_hints import layers_of
from convkit.worker.survey.inputs.survey_messages import example_wanted
from convkit.worker.survey.inputs.written_shapes import WrittenShape, written_shapes
from convkit.worker.survey.sizes.batch_axis import BATCH, is_independent, with_batch
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.argument_roles import Role
from convkit.worker.survey.torch_module.fitting_sizes import fitting, usual_sizes
from convkit.worker.survey.torch_module.held_batch import held_batches
from convkit.worker.survey.torch_module.input_candidates import InputCandidate, by_layers, by_name
from convkit.worker.survey.torch_module.module_trials import ModuleTrials
from convkit.worker.survey.torch_module.picture_sides import settled_sides
from convkit.worker.survey.torch_module.solved_widths import solved_candidates
from convkit.worker.survey.values.mask_meaning import all_hide, with_lengths

# Combinations of what the inputs may be.
_MOST_COMBINATIONS = 600
# Combinations that are tried after one that works, whose rows are not independent.
_MORE_COMBINATIONS = 60
# Calls with one of them get beyond `~mask`, which fractions do not have.
_ANY_MASK = (
    InputCandidate("bool", ("batch", "sequence"), Sample("integers", (0.0, 2.0))),
    InputCandidate("bool", ("sequence", "sequence"), Sample("integers", (0.0, 2.0))),
)
# Rows have a width.
AXES_OF_ROWS = 2
# Calls that show what becomes of an input, and seconds that all of them may take.
_CALLS_FOR_ROLES, _SECONDS_FOR_ROLES = 12, 3.0
# A text model runs without these, and its results mean less.
_COMPANIONS = ("attention_mask", "token_type_ids")
# Inputs that a model of several kinds of data refuses to go without.
_ALTERNATIVES = ("input_ids", "pixel_values", "input_features", "input_values", "decoder_input_ids")


def first_run(loaded: LoadedModel, trials: ModuleTrials) -> Start:
    """Return the first inputs with which the model runs; raises StageFailedError with what only a
    person can know.
    """
    reason = ""
    written = (
        written_shapes(loaded.module, loaded.source_root) if not loaded.of_transformers else ()
    )
    for names in _input_sets(loaded):
        roles = _roles(names, loaded, trials) if not loaded.of_transformers else {}
        found = _search(names, loaded, roles, trials, written)
        if not found.is_sound and (batches := _likely_batches(names, loaded, trials)):
            other = _search(names, loaded, roles, trials, written, batches)
            found = other if other.is_sound or found.start is None else found
        if found.start is not None:
            return settled_sides(found.start, trials)
        reason = reason or found.reason
    reason = reason or "neither its layers nor its inputs' names say what they are"
    raise StageFailedError(example_wanted(list(forward_parameters(loaded)), reason))


@dataclasses.dataclass(frozen=True)
class _Found:
    """Inputs with which a model runs. `is_sound`: nothing speaks against what they mean. `reason`
    says why the first did not run.
    """

    start: Start | None
    reason: str
    is_sound: bool = False


def _search(
    names: Sequence[str],
    loaded: LoadedModel,
    roles: Mapping[str, Role],
    trials: ModuleTrials,
    written: Sequence[WrittenShape],
    batches: Sequence[int] = (),
) -> _Found:
    """Return the first inputs that are sound, else the first that the model runs with. `written`
    is what the source states of shapes, `batches` are sizes of the batch in place of the usual
    ones.
    """
    reason, first, left = "", None, _MOST_COMBINATIONS
    for candidates in _points_first(names, loaded, _combinations(names, loaded, roles), trials):
        start = with_counts(_start(names, candidates), roles)
        fits, why = fitting(start, loaded.module, written, trials, batches)
        if fits is not None:
            start = fits
            if loaded.of_transformers:
                return _Found(start, "", is_sound=True)
            start = with_batch(start, trials)
            if (
                _has_rows(start, trials)
                and all_hide(start, trials)
                and _reads_tables(start, loaded, trials)
            ):
                return _Found(start, "", is_sound=True)
            if first is None:
                first, left = start, _MORE_COMBINATIONS
        reason = reason or why
        left -= 1
        if left <= 0 or (first is not None and trials.is_over):
            break
    return _Found(first, reason)


def _likely_batches(
    names: Sequence[str], loaded: LoadedModel, trials: ModuleTrials
) -> Sequence[int]:
    """Return sizes that a module may hold as that of its batch; none for transformers' models."""
    for candidates in _one_by_one(names, loaded) if not loaded.of_transformers else ():
        start = _start(names, candidates)
        with contextlib.suppress(StageFailedError, DimensionError):
            sizes = next(usual_sizes(start.inputs))
            feeds = trials.drawn(start.inputs, start.samples, sizes, Draw("example"))
            if found := held_batches(loaded, feeds):
                return found
    return ()


def _has_rows(start: Start, trials: ModuleTrials) -> bool:
    """Return False if what is called the batch has a single row, or rows that are no rows: one
    sequence without a batch runs, too, in most models.
    """
    rows = start.sizes.get(BATCH)
    if "edges" in start.sizes:  # they join what is otherwise the batch's rows
        return True
    return rows is None or (rows > 1 and is_independent(start, BATCH, trials) is not False)


def _roles(names: Sequence[str], loaded: LoadedModel, trials: ModuleTrials) -> dict[str, Role]:
    """Return what becomes of inputs in calls with the likeliest, of which most fail."""
    found: dict[str, Role] = {}
    if len(names) < 2:
        return found
    began = time.process_time()
    for candidates in _one_by_one(names, loaded):
        start = _start(names, candidates)
        sizes = next(usual_sizes(start.inputs))
        with contextlib.suppress(StageFailedError, DimensionError):
            feeds = trials.drawn(start.inputs, start.samples, sizes, Draw("roles"))
            found = {**trials.uses(feeds).roles, **found}
        if time.process_time() - began > _SECONDS_FOR_ROLES:
            break
    return found


def _one_by_one(names: Sequence[str], loaded: LoadedModel) -> Iterator[list[InputCandidate]]:
    """Yield the likeliest candidates, with each of an input's others in place of its own."""
    parameters = forward_parameters(loaded)
    lists = [
        _in_own_type(by_layers(parameters[name], loaded), loaded)[:_CALLS_FOR_ROLES]
        for name in names
    ]
    if not all(lists):
        return
    first = [each[0] for each in lists]
    yield first
    for place, others in enumerate(lists):
        for other in others[1:]:
            yield [*first[:place], other, *first[place + 1 :]]
    for main, mask in itertools.product(lists[0], _ANY_MASK):
        for place in range(1, len(lists)):
            yield [main, *first[1:place], mask, *first[place + 1 :]]


def _reads_tables(start: Start, loaded: LoadedModel, trials: ModuleTrials) -> bool:
    """Return False if whole numbers that were drawn as those of a table are no indices."""
    rows = {float(layer.width) for layer in layers_of(loaded.module) if layer.columns}
    start = with_lengths(start, trials)
    ids = [
        spec.name
        for spec in start.inputs
        if start.samples[spec.name].kind == "integers"
        and spec.dtype != "bool"
        and start.samples[spec.name].numbers[1] in rows
    ]
    if len(start.inputs) < 2 or not ids:
        return True
    given = at_full_length(start.inputs, start.samples, start.sizes)
    uses = trials.uses(trials.drawn(start.inputs, given, start.sizes, Draw("uses")))
    return uses.indices.issuperset(ids)


def with_counts(start: Start, roles: Mapping[str, Role]) -> Start:
    """Return a start in which ids have a value as often as there are rows for its places."""
    samples = dict(start.samples)
    for spec in start.inputs:
        role = roles.get(spec.name)
        if role is None or role.name != "rows" or len(spec.shape) < AXES_OF_ROWS:
            continue
        sample = samples.get(role.ids)
        if sample is None or sample.kind != "integers":
            continue
        count = "*".join(map(str, spec.shape[:-1]))
        if role.from_each is not None:
            count = f"{spec.shape[0]}*{role.from_each}"
            if isinstance(spec.shape[0], int):
                count = str(spec.shape[0] * role.from_each)
        held = Held(role.value, int(count) if count.isdigit() else count)
        others = (each for each in sample.held if each.value != role.value)
        if sample.numbers[0] <= role.value < sample.numbers[1]:
            samples[role.ids] = dataclasses.replace(sample, held=(*others, held))
    return dataclasses.replace(start, samples=samples)


def _input_sets(loaded: LoadedModel) -> Iterator[list[str]]:
    """Yield the parameters to fill: those that forward requires, then with others that it may."""
    parameters = forward_parameters(loaded)
    required = [name for name, each in parameters.items() if each.default is each.empty]
    if not loaded.of_transformers:
        yield required or list(parameters)[:1]
        return
    main = getattr(loaded.module, "main_input_name", "")
    wanted = {*required, *([main] if main in parameters else [])}
    tried = []
    for more in (None, "decoder_input_ids", *_ALTERNATIVES):
        if more in parameters:
            wanted.add(more)
        companions = set()
        if "input_ids" in wanted:
            companions = {name for name in _COMPANIONS if name in parameters}
            if not (getattr(loaded.config, "type_vocab_size", 0) or 0) > 1:
                companions.discard("token_type_ids")
        names = [name for name in parameters if name in wanted | companions]
        if names not in tried:
            tried.append(names)
            yield names


def _combinations(
    names: Sequence[str], loaded: LoadedModel, roles: Mapping[str, Role]
) -> Iterator[tuple[InputCandidate, ...]]:
    """Yield one candidate for each input, the likeliest together first."""
    parameters = forward_parameters(loaded)
    lists = []
    for name in names:
        known = by_name(name, loaded.config) if loaded.of_transformers else []
        lists.append(
            known or _in_own_type(by_layers(parameters[name], loaded, roles.get(name)), loaded)
        )
    longest = max(map(len, lists), default=0)
    for reach in range(longest):
        for places in itertools.product(*(range(min(len(each), reach + 1)) for each in lists)):
            if max(places) == reach:
                yield tuple(each[place] for each, place in zip(lists, places, strict=True))


def _points_first(
    names: Sequence[str],
    loaded: LoadedModel,
    combinations: Iterator[tuple[InputCandidate, ...]],
    trials: ModuleTrials,
) -> Iterator[tuple[InputCandidate, ...]]:
    """Yield combinations, points before all others if they run and the likeliest does not: some of
    the others compare every column of a picture with every other.
    """

    def runs(candidates: tuple[InputCandidate, ...]) -> bool:
        start = _start(names, candidates)
        return trials.run(start.inputs, start.samples, next(usual_sizes(start.inputs))).worked

    likeliest = next(combinations, None)
    if likeliest is None:
        return
    if not loaded.of_transformers and not runs(likeliest):
        points = _in_own_type(solved_candidates(loaded, names), loaded)
        yield from ((each,) for each in points if runs((each,)))
    yield likeliest
    yield from combinations


def _in_own_type(candidates: Sequence[InputCandidate], loaded: LoadedModel) -> list[InputCandidate]:
    """Return inputs in float16 for a module with all its weights in it."""
    weights = {each.dtype for each in loaded.module.parameters() if each.is_floating_point()}
    if weights != {torch.float16}:
        return [*candidates]
    return [
        dataclasses.replace(each, dtype="float16") if each.dtype == "float32" else each
        for each in candidates
    ]


def _start(names: Sequence[str], candidates: Sequence[InputCandidate]) -> Start:
    inputs = tuple(
        TensorSpec(name, candidate.dtype, candidate.shape, padding=candidate.padding)
        for name, candidate in zip(names, candidates, strict=True)
    )
    samples = {name: candidate.sample for name, candidate in zip(names, candidates, strict=True)}
    return Start(inputs, {}, samples)
