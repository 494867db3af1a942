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
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.original.loading.mapped_weights import exceed_budget
from convkit.worker.precision.constant_rounding import round_array
from convkit.worker.runtime_interface.sessions import RunFailedError

_HALF = frozenset({"float16", "bfloat16"})
# The largest whole number of a symmetric scale, and how many weights of a row share one: the finest
# that converters write by default (a row in int8; blocks of 32 in int4).
_LARGEST = {"int8": 127.0, "int4": 7.0}
_BLOCK = 32
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
    outputs, in two usual cases of the ladder. `run` runs the original, whose model is `module`.

    Whole-number types round the weights of products alone, each row by its own scale. Nothing is
    returned for weights that exceed the memory for them, for cases that take longer than 2 s or
    that the rounded model refuses, and for results that are not finite.
    """
    if not types or exceed_budget(module):
        return ()
    usual = [each for each in records if each.kind == "ladder" and is_usual(each.name)]
    quick = sorted(
        (each for each in usual if each.seconds <= _MOST_SECONDS),
        key=lambda each: each.name != "typical",
    )
    found: list[RoundedOutput] = []
    for dtype in types:
        with rounded_weights(module, dtype):
            for case in quick[:_CASES]:
                feeds = read_tensors(folder, case.name, "inputs", contract.inputs)
                try:
                    outputs = _rounded(run(_rounded(feeds, dtype)), dtype)
                except RunFailedError:
                    continue
                expected = read_tensors(folder, case.name, "outputs", contract.outputs)
                measured = (compare(name, expected[name], outputs[name]) for name in expected)
                found += [
                    RoundedOutput(dtype, case.name, each)
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
