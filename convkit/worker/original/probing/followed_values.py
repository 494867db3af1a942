"""Follows a torch model's inputs, element by element, to where they are rounded, compared or looked
up.

Each operation on the way is kept with its constants, so that the decision can be made again for any
value of the input: `original.probing.torch_comparisons` runs the model, `cases.decision_values`
finds the values at which a decision changes.
"""

import dataclasses
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from convkit.worker.cases.decision_values import ValueDecision
from convkit.worker.original.source_lines import relative_line
from convkit.worker.original.torch_dtypes import to_array

_TORCH = str(Path(torch.__file__).parent)
_FOLDER = str(Path(__file__).parent)

# Functions whose result has the same values; those that compute each element by itself without a
# jump; and those that jump. `add_`, `__iadd__` and `__add__` are all called add here.
_SAME = frozenset((
    "view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "movedim", "flatten",
    "expand", "expand_as", "contiguous", "clone", "detach", "unflatten", "select", "narrow",
    "getitem", "unbind", "split", "chunk", "repeat", "t",
))  # fmt: skip
_SMOOTH = frozenset((
    "add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv", "rtruediv",
    "true_divide", "divide", "multiply", "subtract", "neg", "negative", "pow", "rpow",
    "square", "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "abs",
    "absolute", "reciprocal", "sigmoid", "tanh", "relu", "clamp", "clip", "clamp_min",
    "clamp_max", "hardtanh", "softplus", "atan", "erf", "logit", "maximum", "minimum",
    "float", "double", "half", "bfloat16", "to", "type", "type_as",
))  # fmt: skip
_TABLES = frozenset(("bucketize", "searchsorted"))
_COMPARISONS = frozenset((
    "lt", "le", "gt", "ge", "eq", "ne", "greater", "greater_equal", "less", "less_equal",
    "not_equal", "bool", "sign", "sgn", "heaviside",
))  # fmt: skip
_ROUNDINGS = frozenset((
    "floor", "ceil", "round", "trunc", "fix", "floor_divide", "floordiv", "rfloordiv", "long",
    "int", "short", "fake_quantize_per_tensor_affine",
))  # fmt: skip
_JUMPS = _TABLES | _COMPARISONS | _ROUNDINGS
# Functions of a quotient that is rounded: down, or toward zero.
_REMAINDERS = {"remainder": "floor", "mod": "floor", "fmod": "trunc"}
# Elements of a constant tensor that are tried in its place, ways followed to one value, operations
# on a way, and decisions of one line.
_ELEMENTS, _MOST_WAYS, _LONGEST, _MOST_DECISIONS = 3, 6, 64, 8

# An input, the line of a decision on it, its operation, and which of several there it is.
DecisionKey = tuple[str, str, str, int]
_Step = Callable[[torch.Tensor], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class _Way:
    """The operations from an input to a value."""

    tensor: str
    steps: tuple[_Step, ...] = ()

    def then(self, step: _Step) -> "_Way":
        return dataclasses.replace(self, steps=(*self.steps, step))

    def outcome(self, values: np.ndarray) -> np.ndarray:
        """Return the last operation's results for values of the input."""
        with torch.no_grad():
            found = torch.from_numpy(values.copy())
            for step in self.steps:
                found = step(found)
        return np.asarray(to_array(found)).astype(np.float64)


class FollowedValues:
    """The ways from a model's inputs to its values, and the decisions at their ends."""

    def __init__(
        self,
        root: str | None,
        inputs: Mapping[str, torch.Tensor],
        decisions: dict[DecisionKey, ValueDecision],
    ) -> None:
        """`root` is the folder of the model's own source files; `decisions` receives what is
        found.
        """
        self._root = root
        # By identity, with the tensor's own life. What an input changes in any other way has none.
        self._ways: dict[int, tuple[_Way, ...]] = {}
        self._decisions = decisions
        for name, tensor in inputs.items():
            self._note(tensor, (_Way(name),) if tensor.dtype != torch.bool else ())

    def called(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: object,
    ) -> None:
        """Note what a function of torch returned for its arguments."""
        arguments: dict[int | str, Any] = {}
        arguments.update(enumerate(args))
        arguments.update(kwargs)
        ours = [key for key, value in arguments.items() if self._depends(value)]
        if not ours:
            return
        ways = list(self._continued(func, arguments, ours, result)) if len(ours) == 1 else []
        for each in result if isinstance(result, list | tuple) else [result]:
            if isinstance(each, torch.Tensor):
                self._note(each, tuple(ways[:_MOST_WAYS]))

    def _depends(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return any(map(self._depends, value))
        return isinstance(value, torch.Tensor) and id(value) in self._ways

    def _note(self, tensor: torch.Tensor, ways: tuple[_Way, ...]) -> None:
        key = id(tensor)
        if key not in self._ways:
            weakref.finalize(tensor, self._ways.pop, key, None)
        self._ways[key] = ways

    def _continued(
        self,
        func: Callable[..., Any],
        arguments: Mapping[int | str, Any],
        ours: Sequence[int | str],
        result: object,
    ) -> Iterator[_Way]:
        """Yield the ways to a result; note the decision if the function makes one."""
        (place,) = ours
        value = arguments[place]
        ways = self._ways[id(value)] if isinstance(value, torch.Tensor) else ()
        name = _plain_name(func)
        if name in _SAME:
            yield from ways
            return
        if not isinstance(result, torch.Tensor) or not ways:
            return
        jumps = name in _JUMPS or _rounds(arguments, value, result)
        if not (jumps or name in _SMOOTH or name in _REMAINDERS or name == "frac"):
            return
        for constants in _chosen(name, arguments, place):
            step = _again(func, constants, place)
            for way in ways:
                if len(way.steps) >= _LONGEST:
                    continue
                if name in _REMAINDERS or name == "frac":
                    quotient = way.then(_quotient(name, constants, place))
                    self._decided(quotient, name, rounds=not _is_whole(value))
                elif jumps and not (name in ("long", "int", "short") and _is_whole(value)):
                    rounds = name in _TABLES or not (name in _COMPARISONS or _is_whole(value))
                    self._decided(way.then(step), name, rounds=rounds)
                yield way.then(step)

    def _decided(self, way: _Way, name: str, *, rounds: bool) -> None:
        line = self._line()
        for number in range(_MOST_DECISIONS):
            key = (way.tensor, line, name, number)
            if key not in self._decisions:
                self._decisions[key] = ValueDecision(way.tensor, line, name, way.outcome, rounds)
                return

    def _line(self) -> str:
        """Return the line of the model's code that is running, behind that of torch."""
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename.startswith((_FOLDER, _TORCH)):
            frame = frame.f_back
        if frame is None:
            return "torch"
        return relative_line(frame.f_code.co_filename, frame.f_lineno, self._root)


def _plain_name(func: Callable[..., Any]) -> str:
    """Return a function's name without what says that it is a method, or changes its argument."""
    name = getattr(func, "__name__", "")
    plain = name.strip("_")
    in_place = name.startswith("__i") and plain != "int"
    return plain[1:] if in_place else plain


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex())


def _rounds(arguments: Mapping[int | str, Any], value: torch.Tensor, result: torch.Tensor) -> bool:
    """Return True for a quotient that is rounded, and for fractions that become whole numbers."""
    return arguments.get("rounding_mode") is not None or (
        _is_whole(result) and not _is_whole(value)
    )


def _chosen(
    name: str, arguments: Mapping[int | str, Any], place: int | str
) -> Iterator[dict[int | str, Any]]:
    """Yield a function's arguments with one element of each tensor beside the followed one; edges
    of a table are kept whole.
    """
    whole = name in _TABLES
    choices: dict[int | str, list[Any]] = {}
    for key, value in arguments.items():
        elements = value.numel() if isinstance(value, torch.Tensor) else 1
        if key == place or whole or elements == 1 or isinstance(value, torch.Size):
            choices[key] = [value.clone() if isinstance(value, torch.Tensor) else value]
            continue
        if elements == 0:
            return
        ordered = value.detach().reshape(-1).unique()
        picked = {0, len(ordered) // 2, len(ordered) - 1}
        choices[key] = [ordered[each : each + 1] for each in sorted(picked)[:_ELEMENTS]]
    choices[place] = [None]
    for picks in itertools.product(*choices.values()):
        yield dict(zip(choices, picks, strict=True))


def _again(func: Callable[..., Any], constants: Mapping[int | str, Any], place: int | str) -> _Step:
    """Return a function of the followed argument alone."""

    def step(value: torch.Tensor) -> torch.Tensor:
        # In place, it would change what others follow.
        filled = {**constants, place: value.clone()}
        positional = [filled[key] for key in sorted(key for key in filled if isinstance(key, int))]
        named = {key: each for key, each in filled.items() if isinstance(key, str)}
        found: torch.Tensor = func(*positional, **named)
        return found

    return step


def _quotient(name: str, constants: Mapping[int | str, Any], place: int | str) -> _Step:
    """Return what a remainder is taken of: the rounded quotient jumps where the remainder does."""
    mode = _REMAINDERS.get(name, "trunc")

    def step(value: torch.Tensor) -> torch.Tensor:
        if name == "frac":
            return value.trunc()
        first, other = ({**constants, place: value}[key] for key in list(constants)[:2])
        return torch.div(torch.as_tensor(first), other, rounding_mode=mode)

    return step
