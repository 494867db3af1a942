"""Branches, loops, lists, and persistent state."""

import torch

from convkit.worker.mil.element_values import STORAGE, TensorList, Value
from convkit.worker.mil.kernels.indexing import checked
from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

# A loop that runs longer than this is considered endless: no model unrolls a million steps.
_MOST_ITERATIONS = 1_000_000


def cond(call: OperationCall) -> list[Value]:
    """Run one of two blocks."""
    return call.blocks[0 if bool(call.tensor("pred")) else 1](())


def while_loop(call: OperationCall) -> list[Value]:
    """Run the second block on the loop's variables while the first returns True."""
    variables = list(call.values("loop_vars"))
    condition, body = call.blocks
    for _ in range(_MOST_ITERATIONS):
        (goes_on,) = condition(variables)
        if not (isinstance(goes_on, torch.Tensor) and bool(goes_on)):
            return variables
        variables = body(variables)
    raise EvaluationError(f"the loop still runs after {_MOST_ITERATIONS:,} iterations")


def make_list(call: OperationCall) -> TensorList:
    """Create a list; a size given as text is not known yet."""
    shape = tuple(
        None if isinstance(size, str) else int(_as_tensor(size))
        for size in call.values("elem_shape")
    )
    kind = STORAGE[call.text("dtype", "fp32")]
    return TensorList(
        (None,) * call.integer("init_length"), shape, kind, call.flag("dynamic_length")
    )


def list_length(call: OperationCall) -> torch.Tensor:
    """Return the number of elements, including unwritten ones."""
    return torch.tensor(len(call.tensor_list("ls").elements), dtype=torch.int32)


def list_write(call: OperationCall) -> TensorList:
    """Write an element, extending a growable list as needed."""
    return _written(call.tensor_list("ls"), [(call.integer("index"), call.tensor("value"))])


def list_scatter(call: OperationCall) -> TensorList:
    """Write several elements."""
    return _written(
        call.tensor_list("ls"),
        list(zip(call.integers("indices"), call.tensor("value"), strict=True)),
    )


def list_read(call: OperationCall) -> torch.Tensor:
    """Read an element."""
    found = call.tensor_list("ls")
    return _element(found, int(checked(call.tensor("index"), len(found.elements))))


def list_gather(call: OperationCall) -> torch.Tensor:
    """Read several elements, stacked."""
    found = call.tensor_list("ls")
    places = checked(call.tensor("indices"), len(found.elements))
    return torch.stack([_element(found, int(place)) for place in places])


def read_state(call: OperationCall) -> torch.Tensor:
    """Return a copy of a state."""
    return call.states[call.state_names["input"]].clone()


def update_state(call: OperationCall) -> torch.Tensor:
    """Replace a state, and return a copy of it."""
    name = call.state_names["state"]
    value = call.tensor("value")
    call.states[name] = value.to(call.states[name].dtype).clone()
    return value


def _written(found: TensorList, writes: list[tuple[int, torch.Tensor]]) -> TensorList:
    elements = list(found.elements)
    shape = found.shape
    for place, value in writes:
        if place < 0 or (place >= len(elements) and not found.grows):
            raise EvaluationError(
                f"index {place} is out of range for a list of {len(elements)} elements"
            )
        if len(value.shape) != len(shape) or any(
            own is not None and own != size for own, size in zip(shape, value.shape, strict=True)
        ):
            raise EvaluationError(
                f"an element of shape {list(value.shape)} does not fit a list of {list(shape)}"
            )
        elements += [None] * (place + 1 - len(elements))
        elements[place] = value.to(found.dtype)
        shape = tuple(value.shape)
    return TensorList(tuple(elements), shape, found.dtype, found.grows)


def _element(found: TensorList, place: int) -> torch.Tensor:
    element = found.elements[place]
    if element is not None:
        return element
    if None in found.shape:
        raise EvaluationError(
            f"element {place} of the list was never written, and its shape is not known"
        )
    return torch.zeros([size for size in found.shape if size is not None], dtype=found.dtype)


def _as_tensor(value: Value) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise EvaluationError("a size of a list's elements is not a number")
    return value
