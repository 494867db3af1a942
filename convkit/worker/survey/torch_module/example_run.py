"""Reads inputs from one example call: their sizes, and how values like the example's are drawn."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.messages import EXAMPLE_FILE, Sample
from convkit.worker.cases.example_case import write_example
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.survey.inputs.survey_messages import (
    only_with_example,
    ranges_of_columns,
    values_matter,
)
from convkit.worker.survey.sizes.first_working_sizes import (
    MASKS,
    Start,
    at_full_length,
    inverted_masks,
    is_mask,
)
from convkit.worker.survey.sizes.size_trials import has_nan
from convkit.worker.survey.sizes.stacked_sizes import with_stacks
from convkit.worker.survey.torch_module.argument_roles import Role
from convkit.worker.survey.torch_module.example_structure import example_call, specs_of
from convkit.worker.survey.torch_module.first_call import AXES_OF_ROWS, with_counts
from convkit.worker.survey.torch_module.module_trials import ModuleTrials
from convkit.worker.survey.torch_module.picture_sides import with_open_side
from convkit.worker.survey.values.index_ranges import FEW

_AXES_OF_COLUMNS = 2
# Whole numbers from here on are times and amounts, not rows of a table; how far equal ones are
# taken apart, in parts of them.
_FAR, _APART = 1 << 20, 1000
# So many rows tell the ranges of so many columns, if the largest values of two differ that much.
_FEWEST_ROWS, _MOST_COLUMNS, _OTHER_UNITS = 3, 32, 10.0
# Values of a mask: what counts, and what does not.
_KINDS = 2
# So many numbers of both signs tell their deviation, which is another if it is so many times 1.
_DEVIATIONS = ((8, 10.0), (64, 2.0))
# Draws that must be accepted as well, and of a narrower range give outputs of the same sizes: some
# values are sizes.
_OTHERS = (Draw("other"), Draw("third"))


def example_run(
    loaded: LoadedModel, example: object, trials: ModuleTrials, folder: Path | None = None
) -> Start:
    """Return the inputs of an example call, as for `example_call`. Where the model does not run
    with numbers drawn from the same ranges, or returns NaN that it does not return for the example,
    they are the example's, from a file in `folder`.

    Raises StageFailedError if the model does not run with it, or a value is not a tensor.
    """
    call = example_call(loaded, example)
    ordered, flat = call.tensors, specs_of(call)
    trials.fill(flat)
    roles = trials.uses({name: to_array(value) for name, value in ordered.items()}).roles
    shapes, sizes = _opened(ordered, roles)
    inputs = tuple(dataclasses.replace(spec, shape=shapes[spec.name]) for spec in flat)
    reason = ""
    arrays = {name: to_array(value) for name, value in ordered.items()}
    offsets = {
        name: Sample("offsets", along=shapes[role.ids][0])
        for name, role in roles.items()
        if role.name == "offsets" and role.ids in shapes
    }
    own = {name: tuple(value.shape) for name, value in ordered.items()}
    returned = trials.values(arrays)
    if returned is not None and has_nan(returned):
        trials.ignore_written_nan()
        returned = trials.values(arrays)
    is_defined = returned is not None and not has_nan(returned)
    undefined: Start | None = None
    for is_inverted, number, drawn in _drawings(ordered, loaded, arrays, folder):
        like = {**drawn, **offsets}
        samples = with_counts(Start(inputs, sizes, like), roles).samples
        marked = _marked_as(ordered, inputs, samples)
        each = inverted_masks(marked, samples) if is_inverted else marked
        if is_inverted and each == marked:
            continue
        trial = trials.run(each, samples, sizes)
        others = [trials.run(each, samples, sizes, draw) for draw in _OTHERS if number]
        if trial.worked and all(other.shapes == trial.shapes for other in others):
            notes = _notes_of_columns(ordered, samples) + _notes_of_files(samples, reason)
            start = Start(each, sizes, samples, notes=notes)
            if is_inverted and _is_blind(start, trials):
                continue
            if not _fails(start, trials, on_nan=is_defined):
                return with_open_side(with_stacks(start, own, trials), trials)
            undefined = undefined or start
        reason = reason or trial.reason or "it refuses some values, or returns NaN"
    if undefined is not None:
        return with_open_side(with_stacks(undefined, own, trials), trials)
    runs = returned is not None
    raise StageFailedError(
        values_matter(reason) if runs else f"--example: the model does not run with it: {reason}"
    )


def _drawings(
    example: Mapping[str, torch.Tensor],
    loaded: LoadedModel,
    arrays: Mapping[str, np.ndarray],
    folder: Path | None,
) -> Iterator[tuple[bool, int, dict[str, Sample]]]:
    """Yield how values are drawn, each with its number, and whether masks mean the opposite of what
    the example's look like: that is tried after all else.
    """
    columns = {name: found for name, value in example.items() if (found := _columns_like(value))}
    for is_inverted in (False, True):
        drawn = itertools.chain(
            _samples_like(example, loaded, columns), _from_example(example, loaded, arrays, folder)
        )
        for number, each in enumerate(drawn):
            yield is_inverted, number, each


def _marked_as(
    example: Mapping[str, torch.Tensor], inputs: Sequence[TensorSpec], samples: Mapping[str, Sample]
) -> tuple[TensorSpec, ...]:
    """Return the inputs, of which masks hide by the value that an example's have less of."""
    return tuple(
        dataclasses.replace(
            spec, padding=int(float((example[spec.name] != 0).double().mean()) < 0.5)
        )
        if is_mask(spec, samples)
        else spec
        for spec in inputs
    )


def _is_blind(start: Start, trials: ModuleTrials) -> bool:
    """Say whether other values change nothing: masks that hide everything would do that."""
    samples = at_full_length(start.inputs, start.samples, start.sizes)
    one, two = (
        trials.values(trials.drawn(start.inputs, samples, start.sizes, Draw(draw)))
        for draw in ("typical", "other")
    )
    return (
        one is not None
        and two is not None
        and all(np.array_equal(values, two[name], equal_nan=True) for name, values in one.items())
    )


def _fails(start: Start, trials: ModuleTrials, *, on_nan: bool) -> bool:
    """Say whether a model refuses values that are drawn as for cases, or returns NaN for them: some
    have to be a covariance, or a direction.
    """
    for draw in (Draw("typical"), *_OTHERS):
        found = trials.values(trials.drawn(start.inputs, start.samples, start.sizes, draw))
        if found is None or (on_nan and has_nan(found)):
            return True
    return False


def example_arrays(
    contract: Contract, loaded: LoadedModel, example: object
) -> dict[str, np.ndarray]:
    """Return an example's values, by the names of a contract's inputs."""
    given = example_call(loaded, example).tensors
    return {spec.name: to_array(given[spec.name]) for spec in contract.inputs}


def _samples_like(
    example: Mapping[str, torch.Tensor], loaded: LoadedModel, of_columns: Mapping[str, Sample]
) -> Iterator[dict[str, Sample]]:
    """Yield how values are drawn: as for such a type, then one input, and all, within the example's
    own range. Columns in units of their own have the example's ranges first.
    """
    usual, within = _ranges_like(example, loaded)
    if of_columns:
        yield {**usual, **of_columns}
    yield usual
    for name, sample in within.items():
        yield {**usual, name: sample}
    yield {**usual, **within}
    if columns := {name: each for name, value in example.items() if (each := _in_columns(value))}:
        yield {**usual, **columns}
        yield {**usual, **within, **columns}


def _ranges_like(
    example: Mapping[str, torch.Tensor], loaded: LoadedModel
) -> tuple[dict[str, Sample], dict[str, Sample]]:
    """Return how values of such types are drawn, and, of numbers, how within an example's range."""
    usual = {name: _sample_like(name, value, loaded) for name, value in example.items()}
    within = {
        name: _within(value) or usual[name]
        for name, value in example.items()
        if usual[name].kind in ("normal", "integers")
    }
    return usual, within


def _from_example(
    example: Mapping[str, torch.Tensor],
    loaded: LoadedModel,
    arrays: Mapping[str, np.ndarray],
    folder: Path | None,
) -> Iterator[dict[str, Sample]]:
    """Yield samples of an example's own values: of one input, of all whole numbers, of all inputs
    but masks, and of all; none if there are too many to be kept. Values may have to fit each other,
    as the corners of a box do.
    """
    if folder is None:
        return
    write_example(folder, arrays)
    if not (file := folder / EXAMPLE_FILE).is_file():
        return
    usual, within = _ranges_like(example, loaded)
    own = {name: Sample("file", path=str(file)) for name, value in example.items() if value.numel()}
    free = [name for name in own if usual[name].kind not in MASKS]
    whole = [name for name in free if not example[name].is_floating_point()]
    chosen = [*([name] for name in free), whole, free, list(own)]
    for names in dict.fromkeys(map(tuple, chosen)):
        yield {**usual, **within, **{name: own[name] for name in names}}


def _columns_like(value: torch.Tensor) -> Sample | None:
    """Return a sample of an example's columns, each within its own range; None if one range will
    do, or too few rows show what the columns' are. Features in units of their own differ widely.
    """
    width = value.shape[-1] if value.dim() >= _AXES_OF_COLUMNS else 0
    rows = value.detach().double().reshape(-1, width) if width else value
    is_table = 1 < width <= _MOST_COLUMNS and value.is_floating_point()
    if not is_table or rows.shape[0] < _FEWEST_ROWS or not bool(rows.isfinite().all()):
        return None
    sizes = rows.abs().amax(0)
    sizes = sizes[sizes > 0]
    if not sizes.numel() or not float(sizes.max()) > _OTHER_UNITS * float(sizes.min()):
        return None
    ends = zip(rows.amin(0).tolist(), rows.amax(0).tolist(), strict=True)
    return Sample("columns", tuple(_brief(end) for pair in ends for end in pair))


def _fractions_like(value: torch.Tensor) -> Sample:
    """Return a sample of numbers like an example's: within their range if they have one sign, as
    pixels and variances do, otherwise normal, with a mean and a deviation of 0 and 1 unless many
    numbers say that theirs are far from that.
    """
    usual = Sample("normal", (0.0, 1.0))
    numbers = value.detach().double()
    numbers = numbers[numbers.isfinite()]
    if not numbers.numel():
        return usual
    low, high, mean = map(float, (numbers.min(), numbers.max(), numbers.mean()))
    if numbers.numel() == 1 and low:
        return Sample("uniform", tuple(map(_brief, sorted((low / 2, 2 * low)))))
    if low == high:
        return usual
    if low >= 0 or high <= 0:
        return Sample("uniform", (_brief(low), _brief(high)))
    deviation = float(numbers.std())
    far = [factor for count, factor in _DEVIATIONS if numbers.numel() >= count]
    is_other = abs(mean) > deviation or not 1 / far[-1] <= deviation <= far[-1] if far else False
    return Sample("normal", (_brief(mean), _brief(deviation))) if is_other else usual


def _brief(number: float) -> float:
    return float(f"{number:.3g}")


def _far_from_zero(low: int, high: int) -> Sample:
    """Return a sample of whole numbers like an example's, such as times: between them, and a little
    apart if all are equal.
    """
    if low == high:
        low, high = low - low // _APART, high + high // _APART
    return Sample("integers", (float(low), float(high + 1)))


def _notes_of_files(samples: Mapping[str, Sample], reason: str) -> tuple[str, ...]:
    names = [name for name, sample in samples.items() if sample.kind == "file"]
    return (only_with_example(names, reason),) if names else ()


def _in_columns(value: torch.Tensor) -> Sample | None:
    """Return a sample of the whole numbers that every column of an example has room for; None if
    that is no narrower than its range. Categories of several fields are often looked up in one
    table, each from its own row on.
    """
    is_table = value.dim() >= _AXES_OF_COLUMNS and value.numel() and not value.is_floating_point()
    if not is_table or value.dtype == torch.bool or int(value.min()) < 0:
        return None
    highest = value.reshape(-1, value.shape[-1]).amax(0)
    high = max(int(highest.min()) + 1, FEW)
    return Sample("integers", (0.0, float(high))) if high <= int(highest.max()) else None


def _notes_of_columns(
    example: Mapping[str, torch.Tensor], samples: Mapping[str, Sample]
) -> tuple[str, ...]:
    columns = {name: _in_columns(value) for name, value in example.items()}
    return tuple(
        ranges_of_columns(name, int(sample.numbers[1]))
        for name, sample in columns.items()
        if sample is not None and samples[name] == sample
    )


def _within(value: torch.Tensor) -> Sample | None:
    """Return a sample of the numbers between the smallest and the largest of an example."""
    if not value.numel() or value.dtype == torch.bool:
        return None
    low, high = float(value.min()), float(value.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if not value.is_floating_point():
        return Sample("integers", (low, high + 1))
    return Sample("uniform", (low, high)) if low < high else Sample("constant", (low,))


def _opened(
    tensors: Mapping[str, torch.Tensor], roles: Mapping[str, Role]
) -> tuple[dict[str, tuple[Dimension, ...]], dict[str, int]]:
    """Return shapes with a name for each size that may vary, and the names' sizes: the batch, and
    the inner axes of all but images. Trials decide which of them do.
    """
    batch = next((value.shape[0] for value in tensors.values() if value.dim()), None)
    names: dict[int, str] = {}
    sizes: dict[str, int] = {}
    shapes: dict[str, tuple[Dimension, ...]] = {}
    bags = {role.ids for role in roles.values() if role.name == "offsets"}
    for tensor, value in tensors.items():
        shape: list[Dimension] = list(value.shape)
        role = roles.get(tensor)
        puts = role is not None and role.name == "rows" and role.from_each is None
        if puts and value.dim() >= AXES_OF_ROWS:
            shapes[tensor] = (*shape[:-2], "features", shape[-1])
            sizes["features"] = value.shape[-2]
            continue
        if tensor in bags and value.dim() == 1:
            shapes[tensor] = ("entries",)
            sizes["entries"] = value.shape[0]
            continue
        if shape and value.shape[0] == batch:
            shape[0] = "batch"
        if value.dim() in (2, 3):
            for place in range(1, value.dim()):
                size = value.shape[place]
                name = "sequence" if not names else f"sequence_{len(names) + 1}"
                shape[place] = names.setdefault(size, name)
        shapes[tensor] = tuple(shape)
    sizes |= {name: size for size, name in names.items()}
    return shapes, sizes | ({"batch": batch} if batch is not None else {})


def _may_mask(value: torch.Tensor) -> bool:
    """Say whether a tensor may mark padding along its last axis: `masked_image` holds more than two
    values, and one mark for each row leaves no axis to pad.
    """
    is_number = value.is_floating_point() and value.unique().numel() > _KINDS
    return not is_number and (value.is_floating_point() or value.shape[-1] != 1)


def _sample_like(name: str, value: torch.Tensor, loaded: LoadedModel) -> Sample:
    """Return how values like the example's are drawn."""
    if "mask" in name and value.dim() > 1 and _may_mask(value):
        return Sample("padding_mask")
    if value.is_floating_point():
        return _fractions_like(value)
    if value.dtype == torch.bool:
        return Sample("integers", (0.0, 2.0))
    if value.numel() and int(value.min()) < 0:  # no rows of a table
        return _within(value) or Sample("integers", (0.0, 2.0))
    if loaded.facts.vocabulary is not None and name.endswith("input_ids"):
        return Sample("token_ids")
    if value.numel() and int(value.min()) >= _FAR:
        return _far_from_zero(int(value.min()), int(value.max()))
    rows = [
        each.num_embeddings
        for each in loaded.module.modules()
        if isinstance(each, torch.nn.Embedding) and each.num_embeddings > int(value.max())
    ]
    # Of several tables, the smallest that has the example's rows is safe.
    return Sample("integers", (0.0, float(min(rows, default=int(value.max()) + 1))))
