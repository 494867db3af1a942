"""The contract of a decoder with its cache: a call without one shows what the model returns, and
calls with one show what it accepts.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec
from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.input_structure import CACHED
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype, to_tensor, to_tensors
from convkit.worker.survey.sizes.first_working_sizes import Start

TASK = "text-generation"
_CACHE = "past_key_values"
_TOKENS: tuple[Dimension, ...] = ("batch", "sequence")
# Two calls that have no size in common, so that a size that differs is an axis.
_CALLS = ({"batch": 2, "sequence": 5}, {"batch": 3, "sequence": 7})
# Sizes of the calls in a loop: the first, a step, and tokens checked at once.
_STEPS = (
    {"batch": 2, "sequence": 5, "past": 0},
    {"batch": 1, "sequence": 1, "past": 4},
    {"batch": 2, "sequence": 3, "past": 6},
)
_LONGEST_CALL, _LONGEST_PAST, _MOST_ROWS = 128, 512, 4
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# Tokens of a call that is compared with the same tokens in two calls, and of the first of these.
_WHOLE, _FIRST = 7, 4
# Largest difference, of the largest score, that the order of float32 sums explains.
_DIFFERENCE = 1e-3


class NotCachedError(Exception):
    """Why a draft cannot have the model's cache, as the end of a sentence."""


def survey_cached(loaded: LoadedModel, start: Start) -> SurveyResult:
    """Return a decoder's inputs and outputs with its cache, at sizes with which it ran.

    `start` is a call without a cache. Raises NotCachedError if the model keeps something other than
    a key and a value for every layer, or computes something else with them than without.
    """
    contract = _contract(loaded, start)
    samples = {
        spec.name: _sample(spec, start.samples) for spec in contract.inputs if spec.dtype == "int64"
    }
    calls = _Calls(loaded, samples)
    for sizes in _STEPS:
        if (reason := calls.refusal(contract, sizes)) is not None:
            raise NotCachedError(reason)
    _compare_calls(loaded, contract, calls)
    contract = dataclasses.replace(contract, axes=_axes(loaded, contract, calls))
    return SurveyResult(
        contract,
        samples,
        ran=True,
        magnitudes=calls.magnitudes,
        faintest=calls.faintest,
        loops=True,
    )


def _contract(loaded: LoadedModel, start: Start) -> Contract:
    """Return the inputs in forward's order, and the outputs; the axes have no sizes yet."""
    cache, heads = _kept(loaded, start)
    logits = _scores(loaded, start)
    inputs: list[TensorSpec] = []
    given = {spec.name: spec for spec in start.inputs}
    for name in forward_parameters(loaded):
        if name == _CACHE:
            inputs += [
                TensorSpec(
                    f"past.{place}", heads[place], _in_past(shape, "past"), f"{name}.{place}"
                )
                for place, shape in cache.items()
            ]
        elif name == "attention_mask" and name in given:
            inputs.append(dataclasses.replace(given[name], shape=("batch", "past + sequence")))
        elif name == "position_ids":
            inputs.append(TensorSpec(name, "int64", _TOKENS))
        elif name in given:
            inputs.append(given[name])
    present = [
        TensorSpec(
            f"present.{place}",
            heads[place],
            _in_past(shape, "past + sequence"),
            f"{_CACHE}.{place}",
        )
        for place, shape in cache.items()
    ]
    if not any(_CACHE in (spec.origin or "") for spec in inputs):
        raise NotCachedError(f"forward has no parameter {_CACHE}")
    return Contract(tuple(inputs), (logits, *present), ())


def _in_past(shape: Sequence[Dimension], past: str) -> tuple[Dimension, ...]:
    return tuple(past if size == "past" else size for size in shape)


def _kept(
    loaded: LoadedModel, start: Start
) -> tuple[dict[str, tuple[Dimension, ...]], dict[str, Any]]:
    """Return the shapes of what each layer keeps, by `0.key`, and their element types; `past` is
    the axis of the earlier tokens.
    """
    found = []
    for sizes in _CALLS:
        returned = _called(loaded, start, sizes)
        cache = getattr(returned, _CACHE, None)
        layers = getattr(cache, "layers", None)
        if not layers:
            raise NotCachedError(_no_cache(returned, cache))
        found.append(_tensors(layers, type(cache).__name__))
    first, second = found
    shapes: dict[str, tuple[Dimension, ...]] = {}
    for place, tensor in first.items():
        shapes[place] = _shape(place, tensor.shape, second[place].shape)
    return shapes, {place: contract_dtype(tensor.dtype) for place, tensor in first.items()}


def _no_cache(returned: object, cache: object) -> str:
    """Return why there is no cache of layers: there is none, or the model keeps a state."""
    if cache is not None:
        return f"it is a {type(cache).__name__}, not a key and a value for each layer"
    kept = [
        name
        for name, value in vars(returned).items()
        if value is not None and not isinstance(value, torch.Tensor)
    ]
    if not kept:
        return "the model returns none"
    return (
        f"the model keeps a state in {' and '.join(kept)}, not a key and a value for each layer. To"
        " convert it with its state, write a module for one token (docs/steps.md)"
    )


def _tensors(layers: Sequence[object], kind: str) -> dict[str, torch.Tensor]:
    tensors = {}
    for number, layer in enumerate(layers):
        for part, attribute in CACHED.items():
            value = getattr(layer, attribute, None)
            if not isinstance(value, torch.Tensor) or contract_dtype(value.dtype) is None:
                raise NotCachedError(
                    f"layer {number} of it is a {type(layer).__name__}, which has no {part} that a"
                    f" {kind} could be rebuilt from"
                )
            tensors[f"{number}.{part}"] = value
    return tensors


def _shape(place: str, first: Sequence[int], second: Sequence[int]) -> tuple[Dimension, ...]:
    """Return a shape in terms of axes, from those of the two calls."""
    shape: list[Dimension] = []
    names = {tuple(each[axis] for each in _CALLS): axis for axis in ("batch", "sequence")}
    for one, other in zip(first, second, strict=True):
        axis = names.get((one, other))
        if axis is None and one != other:
            raise NotCachedError(
                f"{place} of it has {one} and {other} elements after calls with"
                f" {_CALLS[0]['sequence']} and {_CALLS[1]['sequence']} tokens"
            )
        shape.append(one if axis is None else "past" if axis == "sequence" else axis)
    if "past" not in shape or "batch" not in shape:
        raise NotCachedError(f"{place} of it does not grow with what was said before")
    return tuple(shape)


def _scores(loaded: LoadedModel, start: Start) -> TensorSpec:
    logits = getattr(_called(loaded, start, _CALLS[0]), "logits", None)
    sizes = _CALLS[0]
    if not isinstance(logits, torch.Tensor) or logits.shape[:-1] != (
        sizes["batch"],
        sizes["sequence"],
    ):
        raise NotCachedError("the model returns no logits for every token")
    dtype = contract_dtype(logits.dtype)
    assert dtype is not None
    return TensorSpec("logits", dtype, (*_TOKENS, logits.shape[-1]))


def _called(loaded: LoadedModel, start: Start, sizes: Mapping[str, int]) -> object:
    if any(spec.shape != _TOKENS for spec in start.inputs):
        raise NotCachedError("the model takes more than tokens, a mask and kinds of tokens")
    contract = Contract(start.inputs, (), ())
    feeds = draw_inputs(contract, start.samples, sizes, 0, facts=loaded.facts, draw=Draw("example"))
    try:
        with torch.no_grad():
            return loaded.module(**to_tensors(start.inputs, feeds), use_cache=True)
    except Exception as error:
        raise NotCachedError(f"the model refuses use_cache: {_said(error)}") from error


def _sample(spec: TensorSpec, samples: Mapping[str, Sample]) -> Sample:
    return samples.get(spec.name, Sample("positions"))


class _Calls:
    """Calls of the model with its cache."""

    def __init__(self, loaded: LoadedModel, samples: Mapping[str, Sample]) -> None:
        self._loaded = loaded
        self._samples = samples
        self.magnitudes: dict[str, float] = {}
        self.faintest: dict[str, float] = {}

    def refusal(self, contract: Contract, sizes: Mapping[str, int]) -> str | None:
        """Return why a call at some sizes does not do what the contract says; None if it does."""
        feeds = draw_inputs(
            contract, self._samples, sizes, 0, facts=self._loaded.facts, draw=Draw("example")
        )
        tensors = [*to_tensors(contract.inputs, feeds).values()]
        at = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
        try:
            found = self.run(contract, tensors)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            return f"a call with it fails (at {at}): {_said(error)}"
        for spec, value in zip(contract.outputs, found, strict=True):
            if tuple(value.shape) != spec.concrete_shape(sizes):
                return f"{spec.name} is {list(value.shape)} after a call at {at}"
            if bool(value.isnan().any()):
                return f"{spec.name} has NaN after a call at {at}"
            largest = float(value.abs().max())
            self.magnitudes[spec.name] = max(largest, self.magnitudes.get(spec.name, 0.0))
            self.faintest[spec.name] = min(largest, self.faintest.get(spec.name, largest))
        return None

    def run(self, contract: Contract, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the contract's outputs; raises the model's errors."""
        with torch.no_grad():
            found: tuple[torch.Tensor, ...] = ContractModule(self._loaded, contract)(*tensors)
        return found


def _compare_calls(loaded: LoadedModel, contract: Contract, calls: _Calls) -> None:
    """Raise NotCachedError unless two calls, the second with the cache of the first, score the last
    tokens as one call with all of them does.
    """
    most = loaded.facts.vocabulary or 2
    tokens = torch.randint(0, most, (2, _WHOLE), generator=torch.Generator().manual_seed(0))

    def call(begin: int, end: int, cache: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        left = iter(cache)
        sizes = {"batch": 2, "sequence": end - begin, "past": begin}
        tensors: list[torch.Tensor] = []
        for spec in contract.inputs:
            shape = spec.concrete_shape(sizes)
            match spec.name:
                case "input_ids":
                    value = tokens[:, begin:end]
                case "attention_mask":
                    value = torch.ones(shape)
                case "position_ids":
                    value = torch.arange(begin, end).expand(shape)
                case _ if spec.origin:
                    value = next(left, torch.zeros(shape))
                case _:
                    value = torch.zeros(shape)
            tensors.append(to_tensor(value.numpy(), spec.dtype))
        return calls.run(contract, tensors)

    whole = call(0, _WHOLE, ())[0][:, _FIRST:]
    _, *cache = call(0, _FIRST, ())
    last = call(_FIRST, _WHOLE, cache)[0]
    error = float((whole - last).abs().max())
    largest = float(whole.abs().max())
    if not error <= _DIFFERENCE * largest:
        raise NotCachedError(
            f"the scores of tokens after a cache differ from those of one call by {error:.2g}"
            f" (the largest is {largest:.2g})"
        )


def _axes(loaded: LoadedModel, contract: Contract, calls: _Calls) -> tuple[Axis, ...]:
    """Return the axes; the longest call and past are what the model has positions for."""
    reason = ""
    for call, past in _longest(loaded):
        refusal = calls.refusal(contract, {"batch": _MOST_ROWS, "sequence": call, "past": past})
        if refusal is None:
            return (
                Axis("batch", 1, 2, _MOST_ROWS),
                Axis("sequence", 1, min(16, call), call),
                Axis("past", 0, min(64, max(past // 2, 1)), past),
            )
        reason = refusal
    raise NotCachedError(reason)


def _longest(loaded: LoadedModel) -> Iterator[tuple[int, int]]:
    """Yield lengths of a call and of a past, the longest first."""
    positions = next(
        (
            size
            for name in _POSITIONS
            if isinstance(size := getattr(loaded.config, name, None), int) and size > 1
        ),
        _LONGEST_CALL + _LONGEST_PAST,
    )
    while positions > 1:
        call = max(min(_LONGEST_CALL, positions // 2), 1)
        yield call, max(min(_LONGEST_PAST, positions - call), 1)
        positions //= 2


def _said(error: Exception) -> str:
    if isinstance(error, StageFailedError):
        return str(error)
    return f"{type(error).__name__}: {error}"
