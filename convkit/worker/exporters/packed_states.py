"""Lets the TorchScript exporter translate recurrent layers over packed sequences whose outputs are
not used, as in a classifier that reads the last state only.

torch moves the packing behind the layer, and fails with a range check if the layer's outputs have
no use and its initial state is made from the packed sequence. An explicit initial state avoids
that: zeros of the batch's size, as the layer would make them.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.utils import rnn

# What torch.nn.utils.rnn calls to pack padded rows.
_FUNCTIONS, _PACK = "_VF", "_pack_padded_sequence"


@contextlib.contextmanager
def explicit_states(module: torch.nn.Module) -> Iterator[None]:
    """While this is active, recurrent layers of a module that get a packed sequence and no initial
    state get zeros.
    """
    layers = [each for each in module.modules() if isinstance(each, torch.nn.RNNBase)]
    if not layers or isinstance(module, torch.jit.ScriptModule):
        yield
        return
    rows: dict[int, torch.Tensor] = {}
    with contextlib.ExitStack() as held:
        held.enter_context(_noting_lengths(rows))
        for layer in layers:
            hook = layer.register_forward_pre_hook(
                lambda layer, given, named: _with_state(layer, given, named, rows), with_kwargs=True
            )
            held.callback(hook.remove)
        yield


@contextlib.contextmanager
def _noting_lengths(rows: dict[int, torch.Tensor]) -> Iterator[None]:
    """Note the lengths that each packed sequence is made with, by the identity of its data."""
    functions: Any = getattr(rnn, _FUNCTIONS)
    pack = getattr(functions, _PACK)

    def packed(values: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:  # noqa: ANN401, FBT001 - torch's
        data, sizes = pack(values, lengths, batch_first)
        rows[id(data)] = lengths
        return data, sizes

    setattr(functions, _PACK, packed)
    try:
        yield
    finally:
        setattr(functions, _PACK, pack)


def _with_state(
    layer: torch.nn.Module,
    given: tuple[Any, ...],
    named: Mapping[str, Any],
    rows: Mapping[int, torch.Tensor],
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the layer's arguments with zeros as its initial state; None to leave them as they
    are.
    """
    assert isinstance(layer, torch.nn.RNNBase)
    sequence = given[0] if given else named.get("input")
    state = given[1] if len(given) > 1 else named.get("hx")
    if not isinstance(sequence, rnn.PackedSequence) or state is not None:
        return None
    lengths = rows.get(id(sequence.data))
    if lengths is None:  # packed in another way, such as by pack_sequence
        return None
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    size = lengths.size(0)

    def zeros(width: int) -> torch.Tensor:
        return torch.zeros(count, size, width, dtype=sequence.data.dtype)

    width = layer.proj_size or layer.hidden_size
    is_lstm = isinstance(layer, torch.nn.LSTM)
    made = (zeros(width), zeros(layer.hidden_size)) if is_lstm else zeros(width)
    return (sequence, made), {}
