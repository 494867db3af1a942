"""Finds sizes and samples at which a file runs at all."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from convkit.protocol.contract import Dimension, DimensionError, TensorSpec, dimension_size
from convkit.protocol.messages import Sample
from convkit.worker.survey.inputs.input_guesses import Guess, is_length
from convkit.worker.survey.sizes.axis_names import CANDIDATES, OpenInputs
from convkit.worker.survey.sizes.size_trials import SizeTrial, Trials
from convkit.worker.survey.sizes.traced_sizes import traced_sizes

_LONG_RUN = 0.7  # seconds
# Combinations of sizes that are tried: with the likeliest samples, and with each alternative.
_FIRST_TRIES, _LATER_TRIES = 400, 40
# Axes of its own that an input has if nothing is known of its size.
_FEWEST_UNKNOWN = 3
# Sizes that fail before those are sought that the file was traced with.
_TRIES_BEFORE_SOLVING = 4
# Sizes with which an output has no elements, after which other samples are tried.
_EMPTY_TRIES = 4
# Sizes with which a result has NaN, after which other samples are tried.
_NAN_TRIES = 8


MASKS = ("padding_mask", "causal_mask")
# The sizes and samples of a run, and the run.
_Worked = tuple[dict[str, int], dict[str, Sample], SizeTrial]


@dataclasses.dataclass(frozen=True)
class Start:
    """Axis sizes and samples with which a file runs; `reason` explains why none were found.
    `holding` are the nodes that hold sizes of the example that the file was traced with, `notes`
    what is to be said of a draft.
    """

    inputs: tuple[TensorSpec, ...]
    sizes: Mapping[str, int]
    samples: Mapping[str, Sample]
    reason: str = ""
    holding: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Failed:
    """A run that failed."""

    opened: OpenInputs
    sizes: dict[str, int]
    samples: dict[str, Sample]
    trial: SizeTrial


def find_start(first: OpenInputs, guesses: Mapping[str, Guess], trials: Trials) -> Start:
    """Return the first sizes and samples with which the file runs and returns no NaN, preferably
    with elements in every output.
    """
    reason, fallback = "", None
    failed: _Failed | None = None
    for number, (opened, samples) in enumerate(_ways(first, guesses)):
        tries = _FIRST_TRIES if number == 0 else _LATER_TRIES
        empty = undefined = failures = 0
        for sizes in itertools.islice(start_sizes(opened), tries):
            trial = trials.run(opened.inputs, at_full_length(opened.inputs, samples, sizes), sizes)
            if trial.worked and not trial.is_empty:
                # A single element is spread over a table of positions, and fits any.
                traced = _traced(failed, trials) if _may_spread(opened, sizes) else None
                return traced or _settled(opened, (sizes, samples, trial), trials)
            if trial.worked:
                fallback = fallback or (opened, (sizes, samples, trial))
                empty += 1
            elif not trial.is_nan:
                failed = failed or _Failed(opened, sizes, samples, trial)
                failures += 1
                if number == 0 and failures == _TRIES_BEFORE_SOLVING:
                    traced = _traced(_Failed(opened, sizes, samples, trial), trials)
                    if traced is not None:
                        return traced
            reason = reason or trial.reason
            undefined += trial.is_nan
            if trials.is_over or empty == _EMPTY_TRIES or undefined == _NAN_TRIES:
                break
    if fallback is not None:
        return _settled(*fallback, trials)
    return Start(first.inputs, next(start_sizes(first)), next(_samples(guesses)), reason)


def _traced(failed: _Failed | None, trials: Trials) -> Start | None:
    """Return a start at the sizes that the file was traced with if a run at others tells them."""
    if failed is None:
        return None
    inputs, samples = failed.opened.inputs, failed.samples

    def run(sizes: Mapping[str, int]) -> SizeTrial:
        return trials.run(inputs, at_full_length(inputs, samples, sizes), sizes)

    found = traced_sizes(failed.opened.roles, failed.sizes, failed.trial, run)
    if found is None or found.trial.is_empty:
        return None
    start = _settled(failed.opened, (found.sizes, samples, found.trial), trials)
    return dataclasses.replace(start, holding=found.nodes)


def _settled(opened: OpenInputs, worked: _Worked, trials: Trials) -> Start:
    """Return a start from a run that worked: with the modes that work, at smaller sizes if it took
    long.
    """
    sizes, samples, trial = worked
    modes = _working_modes(opened.inputs, samples, sizes, trials)
    return _cheaper(opened, Start(opened.inputs, sizes, modes), trial.seconds, trials)


def _cheaper(opened: OpenInputs, start: Start, seconds: float, trials: Trials) -> Start:
    """Return a start at smaller sizes if runs take long: dozens will follow."""
    if seconds <= _LONG_RUN:
        return start
    for sizes in itertools.islice(start_sizes(opened), _LATER_TRIES):
        if any(size > start.sizes[name] for name, size in sizes.items()) or sizes == start.sizes:
            continue
        given = at_full_length(opened.inputs, start.samples, sizes)
        trial = trials.run(opened.inputs, given, sizes)
        if trial.worked and trial.seconds < seconds / 2:
            return dataclasses.replace(start, sizes=sizes)
    return start


def _working_modes(
    inputs: tuple[TensorSpec, ...],
    samples: Mapping[str, Sample],
    sizes: Mapping[str, int],
    trials: Trials,
) -> dict[str, Sample]:
    """Return the samples with those values only of each `one_of` that work at these sizes."""
    kept = dict(samples)
    for name, sample in samples.items():
        if sample.kind != "one_of":
            continue
        works = [
            number
            for number in sample.numbers
            if trials.run(
                inputs,
                at_full_length(inputs, {**kept, name: Sample("constant", (number,))}, sizes),
                sizes,
            ).worked
        ]
        kept[name] = Sample("one_of", tuple(works) or sample.numbers)
    return kept


def each_mode(samples: Mapping[str, Sample]) -> Iterator[dict[str, Sample]]:
    """Yield the samples once for each combination of the values of `one_of`."""
    modes = {name: sample.numbers for name, sample in samples.items() if sample.kind == "one_of"}
    for numbers in itertools.product(*modes.values()):
        chosen = {
            name: Sample("constant", (number,)) for name, number in zip(modes, numbers, strict=True)
        }
        yield {**samples, **chosen}


def start_sizes(opened: OpenInputs) -> Iterator[dict[str, int]]:
    """Yield sizes for all axes, most likely first: by the sum of their indices in the lists of
    candidates.
    """
    names = list(opened.roles)
    lists = [CANDIDATES[opened.roles[name]] for name in names]
    empty = _empty_states(opened)
    # Axes of one role have the same size more often than not.
    for together in itertools.islice(itertools.zip_longest(*lists), 6):
        if None not in together:
            likely = dict(zip(names, together, strict=True))
            yield likely
            if empty:
                yield {**likely, **dict.fromkeys(empty, 1)}
    most = sum(len(sizes) - 1 for sizes in lists)
    for total in range(min(most, 24) + 1):
        for places in _places([len(sizes) for sizes in lists], total):
            pairs = zip(names, lists, places, strict=True)
            yield {name: sizes[place] for name, sizes, place in pairs}


def _may_spread(opened: OpenInputs, sizes: Mapping[str, int]) -> bool:
    """Return True if an axis of the first input, other than its rows, has a single element."""
    return any(
        sizes.get(str(size)) == 1 and opened.roles[str(size)] != "batch"
        for size in opened.inputs[0].shape
        if isinstance(size, str) and size in opened.roles
    )


def _empty_states(opened: OpenInputs) -> set[str]:
    """Return the axes of inputs that may begin with a single element, which is spread over all that
    it meets, as states of video models do: nothing says how large they are, and no other input has
    such an axis.
    """

    def axes_of(spec: TensorSpec) -> set[str]:
        return {size for size in spec.shape if isinstance(size, str)}

    rows = {axis for axis, role in opened.roles.items() if role == "batch"}
    found: set[str] = set()
    for spec in opened.inputs[1:]:
        others = set[str]().union(*(axes_of(each) for each in opened.inputs if each is not spec))
        own = axes_of(spec) - others - rows
        if len(own) >= _FEWEST_UNKNOWN:
            found |= own
    return found


def _places(lengths: list[int], total: int) -> Iterator[tuple[int, ...]]:
    if not lengths:
        if total == 0:
            yield ()
        return
    for first in range(min(total, lengths[0] - 1) + 1):
        for rest in _places(lengths[1:], total - first):
            yield (first, *rest)


def _ways(
    opened: OpenInputs, guesses: Mapping[str, Guess]
) -> Iterator[tuple[OpenInputs, dict[str, Sample]]]:
    """Yield the inputs and their samples, likeliest first: next after that, masks may mean the
    opposite.
    """
    likeliest, *others = _samples(guesses)
    yield opened, likeliest
    inverted = inverted_masks(opened.inputs, likeliest)
    if inverted != opened.inputs:
        yield dataclasses.replace(opened, inputs=inverted), likeliest
    yield from ((opened, samples) for samples in others)


def inverted_masks(
    inputs: tuple[TensorSpec, ...], samples: Mapping[str, Sample]
) -> tuple[TensorSpec, ...]:
    """Return the inputs with the other meaning of each padding mask."""
    return tuple(
        dataclasses.replace(spec, padding=1 - spec.padding)
        if is_mask(spec, samples) and not samples[spec.name].numbers
        else spec
        for spec in inputs
    )


def is_mask(spec: TensorSpec, samples: Mapping[str, Sample]) -> bool:
    """Return True if an input hides positions along an axis."""
    return bool(spec.shape) and spec.name in samples and samples[spec.name].kind in MASKS


def is_padding_mask(spec: TensorSpec, samples: Mapping[str, Sample]) -> bool:
    """Return True if an input marks padding along an axis."""
    return is_mask(spec, samples) and samples[spec.name].kind == "padding_mask"


def _samples(guesses: Mapping[str, Guess]) -> Iterator[dict[str, Sample]]:
    likeliest = {name: guess.sample for name, guess in guesses.items()}
    yield likeliest
    for name, guess in guesses.items():
        for other in guess.others:
            yield {**likeliest, name: other}


def at_full_length(
    inputs: tuple[TensorSpec, ...], samples: Mapping[str, Sample], sizes: Mapping[str, int]
) -> dict[str, Sample]:
    """Return the samples with every length equal to the full size of its axis: the one that the
    sample says, else the longest.
    """
    longest = longest_dimension(inputs)
    full = dict(samples)
    for spec in inputs:
        whole = samples[spec.name].along or longest if spec.name in samples else None
        is_own = spec.name in samples and samples[spec.name].kind == "lengths"
        if whole is None or not (is_own or is_length(spec)):
            continue
        with contextlib.suppress(DimensionError):  # of an axis that has got one size since
            full[spec.name] = Sample("constant", (dimension_size(whole, sizes),))
    return full


def longest_dimension(inputs: tuple[TensorSpec, ...]) -> Dimension | None:
    """Return the dimension that lengths speak of: the last open one of the first input that is no
    length, apart from its rows, of which there are as many as lengths.
    """
    rows = {size for spec in inputs if is_length(spec) for size in spec.shape}
    for spec in inputs:
        if is_length(spec) or not spec.shape:
            continue
        inner = spec.shape[1:] if len(spec.shape) > 1 else spec.shape
        if rows.intersection(inner):  # the rows are not first
            inner = tuple(size for size in spec.shape if size not in rows) or inner
        return next((size for size in reversed(inner) if isinstance(size, str)), inner[-1])
    return None
