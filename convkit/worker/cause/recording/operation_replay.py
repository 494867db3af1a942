"""Calls a recorded operation of torch again, with other inputs or with other arguments."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from convkit.worker.cause.recording.recorded_call import Value
from convkit.worker.original.torch_dtypes import to_array

# Words that an argument may have.
_WORDS = {"approximate": ("none", "tanh"), "rounding_mode": ("trunc", "floor", None)}
_IN_TRAINING = (
    "as in training, with the mean and variance of its own input, and should with the trained ones"
)
_AXES, _AXIS = ("dim", "dims"), ("dim", "axis", "dim0", "dim1")


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Stands for a tensor among the arguments: a value of the recording, and its type."""

    value: int
    dtype: torch.dtype


class TorchReplay:
    """One recorded operation. `values` of inputs are those of the recording unless replaced."""

    def __init__(
        self,
        function: OpOverload,
        bound: Mapping[str, Any],
        number_of: Callable[[torch.Tensor], int],
        recorded: Sequence[Value],
    ) -> None:
        self._function = function
        # The list that the recording goes on filling: this value may not be in it yet.
        self._recorded = recorded

        def slot(leaf: object) -> object:
            return _Slot(number_of(leaf), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf

        self._bound = {name: tree_map(slot, value) for name, value in bound.items()}

    def __call__(
        self, values: Mapping[int, np.ndarray], changed: Mapping[str, object]
    ) -> tuple[np.ndarray, ...]:
        """Return the results with some values and arguments replaced; raises torch's exceptions,
        and ValueError for a recurrent layer's values of another shape.
        """

        def tensor(leaf: object) -> object:
            if not isinstance(leaf, _Slot):
                return leaf
            recorded = self._recorded[leaf.value].array
            array = values.get(leaf.value, recorded)
            if self._is_unchecked and array.shape != recorded.shape:
                raise ValueError(f"a recurrent layer takes {recorded.shape}, not {array.shape}")
            return torch.from_numpy(np.array(array)).to(leaf.dtype)

        given = {name: tree_map(tensor, each) for name, each in {**self._bound, **changed}.items()}
        schema = self._function._schema.arguments  # noqa: SLF001 - torch has no public way
        positional = [given[each.name] for each in schema if not each.kwarg_only]
        named = {each.name: given[each.name] for each in schema if each.kwarg_only}
        with torch.no_grad():
            found = self._function(*positional, **named)
        return tuple(to_array(each) for each in tree_leaves(found) if torch.is_tensor(each))

    def call(self, names: Mapping[int, str]) -> str:
        """Return the operation as an expression: `torch.ops.aten.atan2.default(x0, x1)`. `names`
        are those of its inputs, by the values' numbers. Arguments that are the default are left
        out, as are devices.
        """
        positional, named = [], []
        for argument in self._function._schema.arguments:  # noqa: SLF001 - torch has no public way
            bound = self._bound[argument.name]
            text = _expression(bound, names)
            if argument.kwarg_only and bound != argument.default_value and text is not None:
                named.append(f"{argument.name}={text}")
            elif not argument.kwarg_only:
                positional.append("None" if text is None else text)
        return f"torch.ops.{self._function}({', '.join([*positional, *named])})"

    def others(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield what else the operation may have been called with, in words and as arguments;
        nothing for what torch does not check.
        """
        if self._is_unchecked:
            return
        kind = self._function._schema.name.rpartition("::")[2].strip("_")  # noqa: SLF001
        for argument in self._function._schema.arguments:  # noqa: SLF001
            now, name = self._bound[argument.name], argument.name
            seen = {repr(now)}
            for other in self._alternatives(name, str(argument.type), now, argument.default_value):
                if repr(other) not in seen:
                    seen.add(repr(other))
                    text = f"with {name} {_shown(other)} and should with {_shown(now)}"
                    yield f"{kind} {_IN_TRAINING if name == 'training' else text}", {name: other}
        slots = [name for name, each in self._bound.items() if isinstance(each, _Slot)]
        if len(slots) > 1:
            first, second = slots[:2]
            exchanged = {first: self._bound[second], second: self._bound[first]}
            yield f"{kind} with {first} and {second} exchanged", exchanged
        for name, each in self._bound.items():
            if isinstance(each, list) and len(each) > 1 and isinstance(each[0], _Slot):
                yield f"{kind} with its {name} in the opposite order", {name: each[::-1]}

    @property
    def _is_unchecked(self) -> bool:
        """Whether it is a recurrent layer: torch's kernels read as many weights as its arguments
        say, of the shapes that these say, without looking what there is, which ends the process.
        """
        return "num_layers" in self._bound

    def _alternatives(self, name: str, kind: str, now: object, default: object) -> Iterator[object]:
        if name in _WORDS:
            yield from _WORDS[name]
        elif isinstance(now, bool) and not (name == "training" and now):
            yield not now
        elif name in _AXES and "List" in kind:
            yield from self._several_axes()
        elif name in _AXIS and isinstance(now, int):
            yield from range(self._rank())
        elif name == "correction":
            yield from (0, 1)
        elif isinstance(now, float | int) and isinstance(default, float | int):
            yield default
        elif now is not None and default is None and "Optional" in kind:
            yield None

    def _several_axes(self) -> Iterator[object]:
        rank = self._rank()
        yield list(range(rank))
        for axis in range(rank):
            yield [axis]
            yield [each for each in range(rank) if each != axis]
            yield list(range(axis, rank))

    def _rank(self) -> int:
        slot = next((each for each in self._bound.values() if isinstance(each, _Slot)), None)
        return self._recorded[slot.value].array.ndim if slot is not None else 0


def replay_of(
    function: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    number_of: Callable[[torch.Tensor], int],
    recorded: Sequence[Value],
) -> TorchReplay | None:
    """Return how to call an operation again; None if it draws random values or is one that writes
    to its inputs and has no other form.
    """
    if torch.Tag.nondeterministic_seeded in function.tags:
        return None
    if function._schema.is_mutable:  # noqa: SLF001
        packet = getattr(torch.ops.aten, function.overloadpacket.__name__.rstrip("_"), None)
        pure = getattr(packet, function._overloadname, None)  # noqa: SLF001
        if pure is None or pure._schema.is_mutable:  # noqa: SLF001
            return None
        function = pure
    bound = {}
    for place, argument in enumerate(function._schema.arguments):  # noqa: SLF001
        given = (
            args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
        )
        bound[argument.name] = given
    return TorchReplay(function, bound, number_of, recorded)


def _expression(value: object, names: Mapping[int, str]) -> str | None:
    """Return an argument as an expression; None for a device, which is the CPU everywhere."""
    if isinstance(value, _Slot):
        return names[value.value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(_expression(each, names)) for each in value)}]"
    if isinstance(value, torch.device):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
