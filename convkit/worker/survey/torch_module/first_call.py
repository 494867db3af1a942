"""Finds inputs with which a torch module runs: from one example call, or by trying."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype, to_array
from convkit.worker.survey.inputs.survey_messages import example_wanted, values_matter
from convkit.worker.survey.sizes.first_working_sizes import Start, inverted_masks
from convkit.worker.survey.sizes.flattened_sizes import SolvedSizes
from convkit.worker.survey.torch_module.input_candidates import (
    ROLES,
    SIZES,
    InputCandidate,
    by_layers,
    by_name,
)
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# Draws of a narrower range that must give outputs of the same sizes: some values are sizes.
_OTHERS = (Draw("other"), Draw("third"))
# Combinations of what the inputs may be, and of sizes for each.
_MOST_COMBINATIONS, _MOST_SIZES = 600, 60
# What other sizes do not mend: elements of the wrong type, too few axes, numbers beyond a table.
_OF_VALUES = re.compile(
    r"index out of range|must be long|scalar type|same dtype|not implemented for"
    r"|tensors used as indices|values to unpack|too many indices|must be a tensor"
)
# A text model runs without these, and its results mean less.
_COMPANIONS = ("attention_mask", "token_type_ids")
# Inputs that a model of several kinds of data refuses to go without.
_ALTERNATIVES = ("input_ids", "pixel_values", "input_features", "input_values", "decoder_input_ids")


def first_run(loaded: LoadedModel, trials: ModuleTrials) -> Start:
    """Return the first inputs with which the model runs; raises StageFailedError with what only a
    person can know.
    """
    reason = ""
    for names in _input_sets(loaded):
        for candidates in itertools.islice(_combinations(names, loaded), _MOST_COMBINATIONS):
            start = _start(names, candidates)
            sizes, why = _fitting_sizes(start, trials)
            if sizes is not None:
                return _settled(start, sizes)
            reason = reason or why
    reason = reason or "neither its layers nor its inputs' names say what they are"
    raise StageFailedError(example_wanted(list(forward_parameters(loaded)), reason))


def _fitting_sizes(start: Start, trials: ModuleTrials) -> tuple[dict[str, int] | None, str]:
    """Return the first sizes with which the model runs; None, and why the first did not, if there
    are none.
    """
    reason = ""
    axes = {size for spec in start.inputs for size in spec.shape if isinstance(size, str)}
    free = axes - {"batch"}
    solved = SolvedSizes(start.inputs, free.pop()) if len(free) == 1 else None
    for usual in itertools.islice(_sizes(start.inputs), _MOST_SIZES):
        sizes: dict[str, int] | None = usual
        while sizes is not None:
            trial = trials.run(start.inputs, start.samples, sizes)
            if trial.worked:
                return sizes, ""
            reason = reason or trial.reason
            if _OF_VALUES.search(trial.reason):
                return None, reason
            sizes = solved.next_sizes(sizes, trial.reason) if solved is not None else None
    return None, reason


def example_run(loaded: LoadedModel, example: object, trials: ModuleTrials) -> Start:
    """Return the inputs of an example call: a tensor, a tuple in forward's order, or a mapping.

    Raises StageFailedError if the model does not run with it, or a value is not a tensor.
    """
    ordered = _example_tensors(loaded, example)
    shapes, sizes = _opened(ordered)
    inputs = tuple(_spec(name, shapes[name], value) for name, value in ordered.items())
    reason = ""
    for number, samples in enumerate(_samples_like(ordered, loaded)):
        for each in dict.fromkeys((inputs, inverted_masks(inputs, samples))):
            trial = trials.run(each, samples, sizes)
            others = [trials.run(each, samples, sizes, draw) for draw in _OTHERS if number]
            if trial.worked and all(other.shapes == trial.shapes for other in others):
                return Start(each, sizes, samples)
            reason = reason or trial.reason
    runs = trials.values({name: to_array(value) for name, value in ordered.items()}) is not None
    raise StageFailedError(
        values_matter(reason) if runs else f"--example: the model does not run with it: {reason}"
    )


def example_arrays(
    contract: Contract, loaded: LoadedModel, example: object
) -> dict[str, np.ndarray]:
    """Return an example's values, by the names of a contract's inputs."""
    given = _example_tensors(loaded, example)
    return {spec.name: to_array(given[spec.name]) for spec in contract.inputs}


def _example_tensors(loaded: LoadedModel, example: object) -> dict[str, torch.Tensor]:
    """Return an example's tensors in forward's order; raises StageFailedError if it has others."""
    parameters = list(forward_parameters(loaded))
    if isinstance(example, torch.Tensor):
        example = (example,)
    if isinstance(example, list | tuple) and len(example) <= len(parameters):
        example = dict(zip(parameters, example, strict=False))
    if not isinstance(example, Mapping) or not example:
        raise StageFailedError(
            "--example: the callable must return one call's inputs: a tensor, a tuple in the order"
            f" of forward's parameters ({', '.join(parameters)}), or a dict of tensors by name;"
            f" it returned a {type(example).__name__}"
        )
    tensors: dict[str, torch.Tensor] = {}
    for name, value in example.items():
        readable = isinstance(value, torch.Tensor) and contract_dtype(value.dtype) is not None
        if name not in parameters or not readable:
            raise StageFailedError(
                f"--example: {name!r} is {_described(value)}; forward takes tensors for"
                f" {', '.join(parameters)}"
            )
        tensors[name] = value
    return {name: tensors[name] for name in parameters if name in tensors}


def _samples_like(
    example: Mapping[str, torch.Tensor], loaded: LoadedModel
) -> Iterator[dict[str, Sample]]:
    """Yield how values are drawn: as for such a type, then one input, and all, within the example's
    own range.
    """
    usual = {name: _sample_like(name, value, loaded) for name, value in example.items()}
    within = {
        name: _within(value) or usual[name]
        for name, value in example.items()
        if usual[name].kind in ("normal", "integers")
    }
    yield usual
    for name, sample in within.items():
        yield {**usual, name: sample}
    yield {**usual, **within}


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


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype}"
    return f"a {type(value).__name__}"


def _spec(name: str, shape: tuple[Dimension, ...], value: torch.Tensor) -> TensorSpec:
    dtype = contract_dtype(value.dtype)
    assert dtype is not None
    return TensorSpec(name, dtype, shape)


def _opened(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[dict[str, tuple[Dimension, ...]], dict[str, int]]:
    """Return shapes with a name for each size that may vary, and the names' sizes: the batch, and
    the inner axes of all but images. Trials decide which of them do.
    """
    batch = next((value.shape[0] for value in tensors.values() if value.dim()), None)
    names: dict[int, str] = {}
    shapes: dict[str, tuple[Dimension, ...]] = {}
    for tensor, value in tensors.items():
        shape: list[Dimension] = list(value.shape)
        if shape and value.shape[0] == batch:
            shape[0] = "batch"
        if value.dim() in (2, 3):
            for place in range(1, value.dim()):
                size = value.shape[place]
                name = "sequence" if not names else f"sequence_{len(names) + 1}"
                shape[place] = names.setdefault(size, name)
        shapes[tensor] = tuple(shape)
    sizes = {name: size for size, name in names.items()}
    return shapes, sizes | ({"batch": batch} if batch is not None else {})


def _sample_like(name: str, value: torch.Tensor, loaded: LoadedModel) -> Sample:
    """Return how values like the example's are drawn."""
    if "mask" in name and value.dim() > 1:
        return Sample("padding_mask")
    if value.is_floating_point():
        return Sample("normal", (0.0, 1.0))
    if value.dtype == torch.bool:
        return Sample("integers", (0.0, 2.0))
    if loaded.facts.vocabulary is not None and name.endswith("input_ids"):
        return Sample("token_ids")
    rows = [
        each.num_embeddings
        for each in loaded.module.modules()
        if isinstance(each, torch.nn.Embedding) and each.num_embeddings > int(value.max())
    ]
    # Of several tables, the smallest that has the example's rows is safe.
    return Sample("integers", (0.0, float(min(rows, default=int(value.max()) + 1))))


def _input_sets(loaded: LoadedModel) -> Iterator[list[str]]:
    """Yield the parameters to fill: those that forward requires, then with others that it may."""
    parameters = forward_parameters(loaded)
    required = [name for name, each in parameters.items() if each.default is each.empty]
    if loaded.config is None:
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
    names: Sequence[str], loaded: LoadedModel
) -> Iterator[tuple[InputCandidate, ...]]:
    """Yield one candidate for each input, the likeliest together first."""
    parameters = forward_parameters(loaded)
    lists = []
    for name in names:
        known = by_name(name, loaded.config) if loaded.config is not None else []
        lists.append(known or _in_own_type(by_layers(parameters[name], loaded), loaded))
    longest = max(map(len, lists), default=0)
    for reach in range(longest):
        for places in itertools.product(*(range(min(len(each), reach + 1)) for each in lists)):
            if max(places) == reach:
                yield tuple(each[place] for each, place in zip(lists, places, strict=True))


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


def _sizes(inputs: Sequence[TensorSpec]) -> Iterator[dict[str, int]]:
    axes = list(
        dict.fromkeys(size for spec in inputs for size in spec.shape if isinstance(size, str))
    )
    # The batch varies slowest: if two rows fail, one rarely helps.
    lists = [SIZES[ROLES[axis]] for axis in axes]
    for sizes in itertools.product(*lists):
        yield dict(zip(axes, sizes, strict=True))


def _settled(start: Start, sizes: Mapping[str, int]) -> Start:
    """Fix the sides of images: few models are exported for images of several sizes."""
    inputs = tuple(
        dataclasses.replace(
            spec, shape=tuple(sizes["side"] if size == "side" else size for size in spec.shape)
        )
        for spec in start.inputs
    )
    left = {axis: size for axis, size in sizes.items() if axis != "side"}
    return Start(inputs, left, start.samples)
