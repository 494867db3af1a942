"""How many steps a model's recurrent layers take that torch.export writes out one by one."""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from convkit.worker.exporters.open_sizes.recurrent_layers import is_whole


def recurrent_steps(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> int:
    """Return the steps that a run takes, over all layers and directions, except in layers that ONNX
    has a node for; 0 if the model refuses to run.
    """
    steps = 0

    def count(layer: torch.nn.Module, given: tuple[Any, ...]) -> None:
        nonlocal steps
        assert isinstance(layer, torch.nn.RNNBase)
        is_packed = bool(given) and isinstance(given[0], PackedSequence)
        length = _length(layer, given[0]) if given and (is_packed or not is_whole(layer)) else 0
        steps += length * layer.num_layers * (1 + layer.bidirectional)

    layers = [each for each in module.modules() if isinstance(each, torch.nn.RNNBase)]
    hooks = [layer.register_forward_pre_hook(count) for layer in layers]
    try:
        with torch.no_grad(), contextlib.suppress(Exception):
            module(*(each.clone() for each in inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return steps


def _length(layer: torch.nn.RNNBase, given: torch.Tensor | PackedSequence) -> int:
    if isinstance(given, PackedSequence):
        return len(given.batch_sizes)
    batched = given.ndim > 2
    return given.shape[1 if batched and layer.batch_first else 0]
