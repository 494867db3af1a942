"""Runs the original with its weights and inputs rounded to a low type: what no conversion to that
type can be asked to do better.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseRecord, LowType, RoundedOutput, TensorMetrics, is_usual
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.equal_scores import read_open, with_open
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.original.loading.mapped_weights import exceed_budget
from convkit.worker.precision.array_rounding import round_array
from convkit.worker.runtime_interface.sessions import RunFailedError

_HALF = frozenset({"float16", "bfloat16"})
# The largest whole number of a symmetric scale, and how many weights of a row share one: the finest
# that converters write by default (a row in int8; blocks of 32 in int4).
_LARGEST = {"int8": 127.0, "int4": 7.0}
_BLOCK = 32
# A quantization to this type rounds what goes into products as well, to this many steps.
_WITH_ACTIVATIONS = "int8"
_STEPS = 255
# Cases slower than this are not run again.
_MOST_SECONDS = 2.0
_CASES = 2


def rounded_outputs(
    module: torch.nn.Module,
    run: Callable[[Feeds], Feeds],
    contract: Contract,
    records: Sequence[CaseRecord],
    folder: Path,
    types: Sequence[LowType],
) -> tuple[RoundedOutput, ...]:
    """Return what rounding weights, inputs and outputs to each type makes of a float32 original's
    outputs, in two usual cases of the ladder; what the type leaves open (`write_open_choices`) is
    right. `run` runs the original, whose model is `module`.

    Whole-number types round the weights of products alone, each row by its own scale; int8 is run
    again with what goes into the products rounded, too, unless TorchScript compiled the module,
    whose layers take no hooks. Nothing is returned for weights that exceed
    the memory for them, for cases that take longer than 2 s or that the rounded model refuses, and
    for results that are not finite.
    """
    if not types or exceed_budget(module):
        return ()
    usual = [each for each in records if each.kind == "ladder" and is_usual(each.name)]
    quick = sorted(
        (each for each in usual if each.seconds <= _MOST_SECONDS),
        key=lambda each: each.name != "typical",
    )
    found: list[RoundedOutput] = []
    runs = [(dtype, False) for dtype in types]
    if not any(isinstance(each, torch.jit.ScriptModule) for each in module.modules()):
        runs += [(dtype, True) for dtype in types if dtype == _WITH_ACTIVATIONS]
    for dtype, activations in runs:
        with rounded_weights(module, dtype), _rounded_products(module, activations):
            for case in quick[:_CASES]:
                feeds = read_tensors(folder, case.name, "inputs", contract.inputs)
                try:
                    outputs = _rounded(run(_rounded(feeds, dtype)), dtype)
                except RunFailedError:
                    continue
                expected = read_tensors(folder, case.name, "outputs", contract.outputs)
                are_open = read_open(folder, case.name, contract.outputs, dtype)
                judged = with_open(outputs, expected, are_open)
                measured = (compare(name, expected[name], judged[name]) for name in expected)
                found += [
                    RoundedOutput(dtype, case.name, each, activations)
                    for each in measured
                    if each.mismatch is None and _is_finite(each)
                ]
    return tuple(found)


def _is_finite(metrics: TensorMetrics) -> bool:
    """Say whether errors are over all elements, and are numbers."""
    return not (metrics.nan_candidate or metrics.inf_mismatched) and math.isfinite(metrics.nrmse)


@contextlib.contextmanager
def rounded_weights(module: torch.nn.Module, dtype: LowType) -> Iterator[None]:
    """Give a module's float32 parameters values of a type, inside the block.

    The parameters stay the same objects, which some modules hold twice (LSTM), and read from other
    memory: a checkpoint's mapped pages are not written.
    """
    kept: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
    try:
        for parameter in _products(module) if dtype in _LARGEST else module.parameters():
            if parameter.dtype is torch.float32 and parameter.numel():
                values = parameter.data
                kept.append((parameter, values))
                parameter.data = _rounded_weight(values, dtype)
        yield
    finally:
        for parameter, values in kept:
            parameter.data = values


@contextlib.contextmanager
def _rounded_products(module: torch.nn.Module, activations: bool) -> Iterator[None]:  # noqa: FBT001 - a run's
    """Round what layers with weights are given, inside the block, if `activations` says so."""
    with contextlib.ExitStack() as hooks:
        if activations:
            weights = {id(each) for each in _products(module)}
            for layer in module.modules():
                if any(id(each) in weights for each in layer.parameters(recurse=False)):
                    hooks.callback(layer.register_forward_pre_hook(_rounded_given).remove)
        yield


def _rounded_given(_: torch.nn.Module, given: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(
        _rounded_activation(each)
        if isinstance(each, torch.Tensor) and each.dtype is torch.float32 and each.numel()
        else each
        for each in given
    )


def _rounded_activation(values: torch.Tensor) -> torch.Tensor:
    """Return a tensor with 256 equally spaced values, zero among them."""
    low, high = values.amin().clamp(max=0), values.amax().clamp(min=0)
    scale = (high - low) / _STEPS
    if not bool(torch.isfinite(scale)) or not bool(scale > 0):
        return values
    return (values / scale).round() * scale


def _products(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Yield the weights that are multiplied; tables, which are looked up, may stay as they are."""
    tables = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    looked_up = {id(each.weight) for each in module.modules() if isinstance(each, tables)}
    for parameter in module.parameters():
        if parameter.ndim > 1 and id(parameter) not in looked_up:
            yield parameter


def _rounded_weight(values: torch.Tensor, dtype: LowType) -> torch.Tensor:
    if dtype in _HALF:
        return values.to(torch.float16 if dtype == "float16" else torch.bfloat16).float()
    rows = values.reshape(len(values), -1)
    if dtype == "int4" and rows.shape[1] % _BLOCK == 0:
        rows = rows.reshape(-1, _BLOCK)
    scale = rows.abs().amax(dim=1, keepdim=True) / _LARGEST[dtype]
    steps = (rows / torch.where(scale > 0, scale, 1.0)).round()
    return (steps * scale).reshape(values.shape)


def _rounded(tensors: Feeds, dtype: LowType) -> Feeds:
    """Return tensors with the values of a half type, in their own; whole-number types leave
    them.
    """
    if dtype not in _HALF:
        return tensors
    return {
        name: round_array(each, dtype).astype(each.dtype) if each.dtype == np.float32 else each
        for name, each in tensors.items()
    }
