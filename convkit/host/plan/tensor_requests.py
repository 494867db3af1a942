"""What requests say about a recipe's inputs and outputs. Pure."""

import math
from collections.abc import Callable

from convkit.host.recipe.checks.names_axes_and_sizes import SOME
from convkit.host.recipe.checks.padding_samples import ADDITIVE, PADDING_VALUES, padding_value
from convkit.host.recipe.keys import recipe as models
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol import contract
from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Held, PreparedInput, Processor, Sample


def contract_of(recipe: Recipe) -> Contract:
    """Return the recipe's contract."""
    axes = tuple(
        contract.Axis(name, axis.min, axis.typical, axis.max)
        for name, axis in recipe.axes.items()
        if isinstance(axis, models.Axis)
    )
    data_axes = tuple(
        contract.DataAxis(name, axis.max, **axis.match.model_dump())
        for name, axis in recipe.axes.items()
        if isinstance(axis, models.DataAxis)
    )
    inputs, outputs = tuple(map(_spec, recipe.inputs)), tuple(map(_spec, recipe.outputs))
    return Contract(inputs, outputs, axes, data_axes)


def _spec(tensor: models.Tensor) -> TensorSpec:
    mask = tensor.mask if isinstance(tensor, models.Output) else None
    given = tensor.preprocess if isinstance(tensor, models.Input) else None
    made = tensor.postprocess if isinstance(tensor, models.Output) else None
    return TensorSpec(
        tensor.name,
        tensor.dtype,
        tensor.shape,
        tensor.origin,
        mask,
        given.constants() if given is not None else None,
        made.constants() if made is not None else None,
        padding_value(tensor.sample) if isinstance(tensor, models.Input) else 0,
    )


def samples_of(recipe: Recipe, place: Callable[[str], str]) -> dict[str, Sample]:
    """Return how each input is sampled. `place` maps a file named in the recipe to its location."""
    return {tensor.name: _sample(tensor.sample, place) for tensor in recipe.inputs}


def _sample(sample: models.Sample | None, place: Callable[[str], str]) -> Sample:
    match sample:
        case None:
            return Sample("normal", (0.0, 1.0))
        case "token_ids" | "positions" | "encoded_image":
            return Sample(sample)
        case str():
            hidden = (-math.inf,) if sample in ADDITIVE else ()
            return Sample("padding_mask" if sample in PADDING_VALUES else "causal_mask", hidden)
        case models.Integers():
            low, high = sample.integers
            held = tuple(
                Held(number, None if count == SOME else count) for number, count in sample.holds
            )
            return Sample("integers", (float(low), float(high)), held=held)
        case (
            models.Normal() | models.Uniform() | models.Columns() | models.Image() | models.Audio()
        ):
            return _fractions(sample)
        case models.OneOf():
            return Sample("one_of", sample.one_of)
        case models.Constant():
            return Sample("constant", (sample.constant,))
        case models.Strings():
            return Sample("strings", strings=sample.strings)
        case models.Lengths() | models.Offsets():
            return _bounded(sample)
        case models.File():
            return Sample("file", path=place(sample.file))


def _fractions(
    sample: models.Normal | models.Uniform | models.Columns | models.Image | models.Audio,
) -> Sample:
    match sample:
        case models.Normal():
            return Sample("normal", sample.normal)
        case models.Uniform():
            return Sample("uniform", sample.uniform)
        case models.Columns():
            return Sample("columns", tuple(end for ends in sample.columns for end in ends))
        case models.Image():
            return Sample("image", sample.image)
        case models.Audio():
            return Sample("audio", sample.audio)


def _bounded(sample: models.Lengths | models.Offsets) -> Sample:
    if isinstance(sample, models.Lengths):
        return Sample("lengths", (1.0,) if sample.filled else (), along=sample.lengths)
    return Sample("offsets", along=sample.offsets)


def prepared_inputs(recipe: Recipe, place: Callable[[str], str]) -> dict[str, PreparedInput]:
    """Return the inputs that are prepared from files, and by which processor."""
    return {
        tensor.name: PreparedInput(
            _processor(tensor.preprocess.processor, place),
            tuple(map(place, tensor.preprocess.files)),
        )
        for tensor in recipe.inputs
        if tensor.preprocess is not None
    }


def processed_outputs(recipe: Recipe, place: Callable[[str], str]) -> dict[str, Processor]:
    """Return the original's own postprocessor of each output that has one."""
    return {
        tensor.name: _processor(tensor.postprocess.processor, place)
        for tensor in recipe.outputs
        if tensor.postprocess is not None
    }


def _processor(source: models.ProcessorSource | None, place: Callable[[str], str]) -> Processor:
    if source is None:
        return Processor()
    if source.call is not None:
        file, _, name = source.call.rpartition(":")
        return Processor("function", place(file), name)
    if source.file is not None:
        return Processor("file", place(source.file))
    return Processor("config", settings=dict(source.config or {}))
