"""Recurrent layers over [sequence, batch, features], step by step."""

from collections.abc import Callable

import torch

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

_Activation = Callable[[torch.Tensor], torch.Tensor]

_ACTIVATIONS: dict[str, _Activation] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


def lstm(call: OperationCall) -> list[torch.Tensor]:
    """Long short-term memory, with gates in the order input, forget, output, cell. Bidirectional
    outputs are concatenated.
    """
    if call.text("direction", "forward") != "bidirectional":
        return list(
            _lstm_direction(
                call, "", call.tensor("initial_h"), call.tensor("initial_c"), _is_reverse(call)
            )
        )
    hidden, cell = call.tensor("initial_h").chunk(2, 1), call.tensor("initial_c").chunk(2, 1)
    forward = _lstm_direction(call, "", hidden[0], cell[0], reverse=False)
    backward = _lstm_direction(call, "_back", hidden[1], cell[1], reverse=True)
    return [torch.cat(pair, -1) for pair in zip(forward, backward, strict=True)]


def rnn(call: OperationCall) -> list[torch.Tensor]:
    """`h = activation(W x + U h + b)`."""
    activation = _activation(call, "activation", "tanh")
    weight = call.tensor("weight_hh")
    projected = _projected(call, "")
    hidden, steps = call.tensor("initial_h"), []
    for step in _order(len(projected), reverse=_is_reverse(call)):
        hidden = activation(projected[step] + hidden @ weight.T)
        steps.append(hidden)
    return [_sequence(call, steps, reverse=_is_reverse(call)), hidden]


def _lstm_direction(
    call: OperationCall,
    suffix: str,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    reverse: bool,  # noqa: FBT001 - see the calls
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if "peephole" + suffix in call.arguments:
        raise EvaluationError("peepholes are not evaluated")
    gate = _activation(call, "recurrent_activation", "sigmoid")
    candidate, last = (
        _activation(call, "cell_activation", "tanh"),
        _activation(call, "activation", "tanh"),
    )
    bound = call.optional("clip")
    projected, weight = _projected(call, suffix), call.tensor("weight_hh" + suffix)
    steps = []
    for step in _order(len(projected), reverse=reverse):
        entry, forget, out, fresh = (projected[step] + hidden @ weight.T).chunk(4, -1)
        cell = gate(forget) * cell + gate(entry) * candidate(fresh)
        cell = torch.minimum(torch.maximum(cell, -bound), bound) if bound is not None else cell
        hidden = gate(out) * last(cell)
        steps.append(hidden)
    return _sequence(call, steps, reverse=reverse), hidden, cell


def _projected(call: OperationCall, suffix: str) -> torch.Tensor:
    projected = call.tensor("x") @ call.tensor("weight_ih" + suffix).T
    bias = call.optional("bias" + suffix)
    return projected if bias is None else projected + bias


def _is_reverse(call: OperationCall) -> bool:
    return call.text("direction", "forward") == "reverse"


def _order(count: int, *, reverse: bool) -> range:
    return range(count - 1, -1, -1) if reverse else range(count)


def _sequence(call: OperationCall, steps: list[torch.Tensor], *, reverse: bool) -> torch.Tensor:
    """Return every step in the input's order, or only the last one computed."""
    if not call.flag("output_sequence"):
        return steps[-1][None]
    return torch.stack(steps[::-1] if reverse else steps)


def _activation(call: OperationCall, name: str, default: str) -> _Activation:
    kind = call.text(name, default)
    if kind not in _ACTIVATIONS:
        raise EvaluationError(f"the activation {kind} is not evaluated")
    return _ACTIVATIONS[kind]
