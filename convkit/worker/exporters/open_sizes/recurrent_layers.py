"""Recurrent layers over as many steps as there are. torch works out the shapes of their results by
computing them step by step, which makes a number of the steps of a trace; ONNX has each layer as
one node.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch._C import DispatchKey
from torch._decomp import decomposition_table

# Where torch looks for what computes an operator in a trace.
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
# Layers that ONNX has a node for, and the operators that they are in a trace.
_WHOLE = {"LSTM": torch.ops.aten.lstm.input, "GRU": torch.ops.aten.gru.input}
_OPEN = contextvars.ContextVar[Sequence[str]]("open_steps", default=())
Results = tuple[torch.Tensor, ...]


@torch.library.custom_op("convkit::of_steps", mutates_args=())  # type: ignore[untyped-decorator]  # torch's
def _of_steps(x: torch.Tensor, width: int) -> torch.Tensor:
    """In place of results of which a trace needs the shape alone: whatever had it in a graph would
    find no translation.
    """
    raise NotImplementedError


@_of_steps.register_fake  # type: ignore[untyped-decorator]  # as above
def _(x: torch.Tensor, width: int) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], width))


@contextlib.contextmanager
def open_steps(kinds: Sequence[str] = tuple(_WHOLE)) -> Iterator[None]:
    """Keep the steps of LSTMs and GRUs open in traces, inside the block. Packed sequences, whose
    steps are values, stay as they are, and so do layers that ONNX has no node for.
    """
    with contextlib.ExitStack() as ended:
        ended.callback(_OPEN.reset, _OPEN.set(kinds))
        for operator in map(_WHOLE.__getitem__, kinds):
            ended.callback(operator._dispatch_cache.clear)  # noqa: SLF001 - no public name
            tables = [(operator.py_kernels, key) for key in _KEYS]
            for table, key in (*tables, (decomposition_table, operator)):
                if key in table:
                    ended.callback(table.__setitem__, key, table[key])
                    table[key] = _by_shapes(table[key])
            operator._dispatch_cache.clear()  # noqa: SLF001 - as above
        yield


def is_open(layer: torch.nn.RNNBase) -> bool:
    """Return whether a layer's steps are kept open now."""
    return type(layer).__name__ in _OPEN.get() and is_whole(layer)


def is_whole(layer: torch.nn.RNNBase) -> bool:
    """Return whether ONNX has a node for a layer. It has none for what projects an LSTM's output,
    and torch's exporter translates no plain RNN.
    """
    return isinstance(layer, torch.nn.LSTM | torch.nn.GRU) and not layer.proj_size


def _by_shapes(by_steps: Callable[..., Results]) -> Callable[..., Results]:
    """Return what computes an operator, but for open steps gives results of the right shapes."""

    @functools.wraps(by_steps)
    def computed(
        x: torch.Tensor,
        state: torch.Tensor | Sequence[torch.Tensor],
        weights: Sequence[torch.Tensor],
        has_biases: bool,  # noqa: FBT001 - the operators' signature
        layers: int,
        dropout: float,
        train: bool,  # noqa: FBT001 - as above
        bidirectional: bool,  # noqa: FBT001 - as above
        batch_first: bool,  # noqa: FBT001 - as above
    ) -> Results:
        states = [state] if isinstance(state, torch.Tensor) else [*state]
        is_symbolic = isinstance(x.shape[1 if batch_first else 0], torch.SymInt)
        if not is_symbolic or len({each.shape[-1] for each in states}) > 1:  # a projected LSTM
            return by_steps(
                *(x, state, weights, has_biases, layers, dropout, train, bidirectional, batch_first)
            )
        width = states[0].shape[-1]
        result = _of_steps(x, width * (2 if bidirectional else 1))
        return (result, *(_of_steps(each, width) for each in states))

    return computed
