"""Recurrent layers over packed sequences as layers over padded ones, for converters that know no
packing.

What a layer gives at padding is replaced by zeros, the last state is the one at a sequence's last
place, and a layer that runs backwards runs forwards over sequences that were turned around within
their lengths. Results have the padded length, as those of torch's ONNX export.
"""

import contextlib
import functools
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.utils import rnn

# A gate's weight for being padding: its sigmoid is 0 or 1 in every float type.
_SURE = 1.0e4


@contextlib.contextmanager
def masked_packing(module: torch.nn.Module) -> Iterator[None]:
    """While this is active, a module packs nothing, and its recurrent layers mask what they get."""
    layers = [each for each in module.modules() if isinstance(each, torch.nn.RNNBase)]
    with contextlib.ExitStack() as held:
        if not isinstance(module, torch.jit.ScriptModule):
            for name, own in _REPLACEMENTS.items():
                held.enter_context(_replaced(name, own))
            for layer in layers:
                layer.forward = functools.partial(_forward, layer, layer.forward)
                held.callback(delattr, layer, "forward")
        yield


def stops_at_packing(error: BaseException) -> bool:
    """Say whether an error was raised where a module packs a batch, or unpacks it."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name in _REPLACEMENTS for frame in frames)


@contextlib.contextmanager
def _replaced(name: str, own: Callable[..., object]) -> Iterator[None]:
    """Replace one of torch's functions wherever a module has imported it."""
    usual = getattr(rnn, name)
    holders = [
        (found, key)
        for each in list(sys.modules.values())
        if isinstance(found := getattr(each, "__dict__", None), dict)
        for key, held in list(found.items())
        if held is usual
    ]
    for names, key in holders:
        names[key] = own
    try:
        yield
    finally:
        for names, key in holders:
            names[key] = usual


def _packed(
    input: torch.Tensor,  # noqa: A002 - torch's
    lengths: Any,  # noqa: ANN401 - a tensor or a list
    batch_first: bool = False,  # noqa: FBT001, FBT002 - torch's
    enforce_sorted: bool = True,  # noqa: FBT001, FBT002, ARG001 - torch's; nothing is sorted here
) -> rnn.PackedSequence:
    """Return a padded batch, [steps, rows, ...], with its lengths in place of the steps' sizes."""
    values = input.transpose(0, 1) if batch_first else input
    sizes = torch.as_tensor(lengths, dtype=torch.int64, device=values.device)
    return rnn.PackedSequence(values, sizes)


def _padded(
    sequence: rnn.PackedSequence,
    batch_first: bool = False,  # noqa: FBT001, FBT002 - torch's
    padding_value: float = 0.0,
    total_length: int | None = None,  # noqa: ARG001 - the padded length is kept
) -> tuple[torch.Tensor, torch.Tensor]:
    values, lengths = sequence.data, sequence.batch_sizes
    is_there = _steps(values) < lengths.unsqueeze(0)
    shape = (*is_there.shape, *(1,) * (values.ndim - is_there.ndim))
    values = torch.where(is_there.reshape(shape), values, padding_value)
    return values.transpose(0, 1) if batch_first else values, lengths


_REPLACEMENTS: dict[str, Callable[..., object]] = {
    "pack_padded_sequence": _packed,
    "pad_packed_sequence": _padded,
}


def _steps(values: torch.Tensor) -> torch.Tensor:
    return torch.arange(values.shape[0], device=values.device).unsqueeze(1)


def _forward(
    layer: torch.nn.RNNBase,
    own: Callable[..., object],
    input: torch.Tensor | rnn.PackedSequence,  # noqa: A002 - torch's
    hx: Any = None,  # noqa: ANN401 - a state, or LSTM's two
) -> object:
    if not isinstance(input, rnn.PackedSequence):
        return own(input, hx)
    lengths, values = input.batch_sizes, input.data
    is_lstm = isinstance(layer, torch.nn.LSTM)
    states = [] if hx is None else list(hx) if is_lstm else [hx]
    directions = 2 if layer.bidirectional else 1
    last: list[list[torch.Tensor]] = []
    for depth in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            number = depth * directions + direction
            mine = [each[number : number + 1] for each in states]
            found, *ends = _direction(layer, values, lengths, number, mine, bool(direction))
            outputs.append(found)
            last.append(ends)
        values = torch.cat(outputs, -1) if directions > 1 else outputs[0]
    whole = [torch.cat(each, 0) for each in zip(*last, strict=True)]
    return rnn.PackedSequence(values, lengths), tuple(whole) if is_lstm else whole[0]


def _direction(
    layer: torch.nn.RNNBase,
    values: torch.Tensor,
    lengths: torch.Tensor,
    number: int,
    states: list[torch.Tensor],
    is_backward: bool,  # noqa: FBT001 - a direction
) -> list[torch.Tensor]:
    """Return what one direction of one layer gives: outputs, last state, and LSTM's cell."""
    steps = _steps(values)
    is_there = steps < lengths.unsqueeze(0)
    mirrored = torch.where(is_there, lengths.unsqueeze(0) - 1 - steps, steps)
    given = _taken(values, mirrored) if is_backward else values
    weights = list(layer.all_weights[number])
    outputs, *_ = _run(layer, given, weights, states)
    state = _taken(outputs, (lengths - 1).unsqueeze(0))
    if is_backward:
        outputs = _taken(outputs, mirrored)
    results = [outputs * is_there.unsqueeze(-1).to(outputs.dtype), state]
    if isinstance(layer, torch.nn.LSTM):
        # Run again, with a feature that says what is padding, where nothing is forgotten and
        # nothing added. It is left out of the trace if nobody reads the cell.
        padding = (~is_there).unsqueeze(-1).to(given.dtype)
        size = layer.hidden_size
        column = torch.zeros(4 * size, 1, dtype=given.dtype)
        column[:size], column[size : 2 * size] = -_SURE, _SURE
        wide = [torch.cat([weights[0], column], 1), *weights[1:]]
        results.append(_run(layer, torch.cat([given, padding], -1), wide, states)[2])
    return results


def _taken(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return steps of each row of [steps, rows, features], by the places in [steps, rows]."""
    return values.gather(0, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def _run(
    layer: torch.nn.RNNBase,
    values: torch.Tensor,
    weights: list[torch.Tensor],
    states: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Run one direction of one layer forwards over whole sequences."""

    def zeros(width: int) -> torch.Tensor:
        return torch.zeros(1, values.shape[1], width, dtype=values.dtype, device=values.device)

    options = (bool(layer.bias), 1, 0.0, False, False, False)
    if isinstance(layer, torch.nn.LSTM):
        given = states or [zeros(layer.proj_size or layer.hidden_size), zeros(layer.hidden_size)]
        return torch.lstm(values, given, weights, *options)
    given = states[0] if states else zeros(layer.hidden_size)
    if isinstance(layer, torch.nn.GRU):
        return torch.gru(values, given, weights, *options)
    run = torch.rnn_relu if layer.nonlinearity == "relu" else torch.rnn_tanh
    return run(values, given, weights, *options)
