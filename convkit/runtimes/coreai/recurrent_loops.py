"""Recurrent layers as torch's `while_loop`, which Core AI has: torch.export writes them out step by
step, for the example's length only.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.functional import linear

Tensors = tuple[torch.Tensor, ...]
# A step of a cell: the input's part of the gates [rows, gates], the state's, and the state.
_Step = Callable[[torch.Tensor, torch.Tensor, Tensors], Tensors]


@contextlib.contextmanager
def recurrent_loops(module: torch.nn.Module) -> Iterator[None]:
    """Let a module's GRU, LSTM and RNN layers run as loops, which any length traces."""
    layers = [each for each in module.modules() if isinstance(each, torch.nn.RNNBase)]
    for layer in layers:
        layer.forward = functools.partial(forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def forward(layer: torch.nn.RNNBase, sequence: torch.Tensor, state: Any = None) -> tuple[Any, Any]:  # noqa: ANN401 - as the layer's own
    """Compute what a layer in eval mode does of a sequence and its first state, one tensor or a
    tuple of two.

    Raises TypeError for packed sequences.
    """
    if not isinstance(sequence, torch.Tensor):
        raise TypeError("a packed sequence cannot be written as a loop")
    is_single = sequence.dim() == 2
    if layer.batch_first and not is_single:
        sequence = sequence.transpose(0, 1)
    elif is_single:
        sequence = sequence[:, None]
    given = None if state is None else tuple(state) if isinstance(state, tuple) else (state,)
    if given is not None and is_single:
        given = tuple(each[:, None] for each in given)
    ends: list[Tensors] = []
    for level in range(layer.num_layers):
        sides = []
        for side in range(2 if layer.bidirectional else 1):
            place = len(ends)
            first = None if given is None else tuple(each[place] for each in given)
            out, end = _direction(layer, sequence, first, f"l{level}{'_reverse' if side else ''}")
            sides.append(out)
            ends.append(end)
        sequence = torch.cat(sides, -1)
    last = tuple(torch.stack(each) for each in zip(*ends, strict=True))
    if is_single:
        sequence, last = sequence[:, 0], tuple(each[:, 0] for each in last)
    elif layer.batch_first:
        sequence = sequence.transpose(0, 1)
    return sequence, last if isinstance(layer, torch.nn.LSTM) else last[0]


def _direction(
    layer: torch.nn.RNNBase, sequence: torch.Tensor, first: Tensors | None, name: str
) -> tuple[torch.Tensor, Tensors]:
    """Return one direction's outputs [steps, rows, size] and its last state."""
    rows = sequence.shape[1]
    size = layer.proj_size or layer.hidden_size
    if first is None:
        sizes = [size, layer.hidden_size] if isinstance(layer, torch.nn.LSTM) else [size]
        first = tuple(sequence.new_zeros((rows, each)) for each in sizes)
    given = linear(sequence, _weight(layer, f"weight_ih_{name}"), _bias(layer, f"bias_ih_{name}"))
    weight, bias = _weight(layer, f"weight_hh_{name}"), _bias(layer, f"bias_hh_{name}")
    projection = _weight(layer, f"weight_hr_{name}") if layer.proj_size else None
    step = _cell(layer, projection)
    steps = torch.arange(sequence.shape[0])
    is_reverse = name.endswith("_reverse")
    outputs = sequence.new_zeros((sequence.shape[0], rows, size))

    # What a loop only reads is carried as well: it may not return what it was given.
    def goes_on(count: torch.Tensor, steps: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return count < steps.shape[0]

    def body(
        count: torch.Tensor, steps: torch.Tensor, given: torch.Tensor, *carried: torch.Tensor
    ) -> Tensors:
        outputs, *state = carried
        at = steps.shape[0] - 1 - count if is_reverse else count
        gates = torch.index_select(given, 0, at.reshape(1))[0]
        made = step(gates, linear(state[0], weight, bias), tuple(state))
        outputs = torch.where((steps == at)[:, None, None], made[0], outputs)
        return count + 1, steps.clone(), given.clone(), outputs, *made

    start = torch.zeros((), dtype=torch.int64)
    found = while_loop(goes_on, body, (start, steps, given, outputs, *first))
    return found[3], tuple(found[4:])


def _cell(layer: torch.nn.RNNBase, projection: torch.Tensor | None) -> _Step:
    """Return a layer's step, as torch's documentation of nn.GRU, nn.LSTM and nn.RNN defines it."""
    if isinstance(layer, torch.nn.GRU):
        return _gru
    if isinstance(layer, torch.nn.LSTM):
        return functools.partial(_lstm, projection)
    act = torch.relu if getattr(layer, "nonlinearity", "tanh") == "relu" else torch.tanh
    return lambda given, kept, _: (act(given + kept),)


def _gru(given: torch.Tensor, kept: torch.Tensor, state: Tensors) -> Tensors:
    (reset, update, new), (reset_of, update_of, new_of) = given.chunk(3, -1), kept.chunk(3, -1)
    update = torch.sigmoid(update + update_of)
    new = torch.tanh(new + torch.sigmoid(reset + reset_of) * new_of)
    return ((1 - update) * new + update * state[0],)


def _lstm(
    projection: torch.Tensor | None, given: torch.Tensor, kept: torch.Tensor, state: Tensors
) -> Tensors:
    enters, forgets, new, leaves = (given + kept).chunk(4, -1)
    cell = torch.sigmoid(forgets) * state[1] + torch.sigmoid(enters) * torch.tanh(new)
    hidden = torch.sigmoid(leaves) * torch.tanh(cell)
    return (hidden if projection is None else linear(hidden, projection)), cell


def _weight(layer: torch.nn.RNNBase, name: str) -> torch.Tensor:
    """Return a weight as a tensor of its own: a loop cannot read a module's parameters."""
    return getattr(layer, name).detach().clone()


def _bias(layer: torch.nn.RNNBase, name: str) -> torch.Tensor | None:
    return _weight(layer, name) if layer.bias else None
