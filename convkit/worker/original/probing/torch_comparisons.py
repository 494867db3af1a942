"""Finds a torch model's comparisons with its inputs' sizes and values, by running it once or twice.

Sizes are passed to the model as integers that track the axes they derive from and record every
comparison; tensors that contain an input's own values are followed to comparisons with constants.
"""

import inspect
import operator
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from convkit.protocol.contract import Contract
from convkit.worker.cases.decision_sizes import (
    COMPARISONS,
    Decisions,
    Formula,
    SizeDecision,
    Sizes,
    Threshold,
    turns,
)
from convkit.worker.cases.decision_values import ValueDecision
from convkit.worker.original.dispatch_mode import FunctionMode
from convkit.worker.original.probing.followed_values import DecisionKey, FollowedValues
from convkit.worker.original.source_lines import relative_line

# A comparison that a run inverts more often belongs to a loop that no longer ends.
_MOST_INVERTED = 1000
# Each run reveals the decisions on one path through the code; the other sides are run next.
_MOST_RUNS = 4

_TORCH = str(Path(torch.__file__).parent)
_HERE = __file__

# Functions whose result has the same values, and those that compare.
KEEPING = frozenset(
    (
        *("to", "float", "double", "long", "int", "half", "bfloat16", "type", "type_as"),
        *("view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "movedim", "flatten"),
        *("expand", "expand_as", "contiguous", "clone", "detach", "unflatten"),
        *("select", "narrow", "__getitem__", "unbind", "split", "chunk"),
    )
)
COMPARING = frozenset(
    (
        *COMPARISONS,
        *(f"__{name}__" for name in COMPARISONS),
        *("greater", "greater_equal", "less", "less_equal", "not_equal"),
    )
)
_LIMIT = frozenset(
    ("clamp", "clamp_", "clamp_min", "clamp_max", "clip", "maximum", "minimum", "threshold")
)
# Whether a function moves by its number (and in which direction) or scales by it.
_AFFINE = {
    "add": (1, 1), "__add__": (1, 1), "__radd__": (1, 1), "sub": (1, -1), "__sub__": (1, -1),
    "mul": (0, 0), "__mul__": (0, 0), "__rmul__": (0, 0),
}  # fmt: skip


_SIZES = (torch.Tensor.shape.__get__, torch.Tensor.size)


class _Log:
    """The observations of one or more runs. The comparisons of sizes at `inverted` turn out the
    other way.
    """

    def __init__(self, root: str | None, inverted: str | None = None) -> None:
        self.root = root
        self._inverted = inverted
        self._times = 0
        self.sizes: dict[tuple[str, str], SizeDecision] = {}
        self.fixed: dict[str, list[Formula]] = {}
        self.thresholds: dict[Threshold, None] = {}
        self.values: dict[DecisionKey, ValueDecision] = {}

    def place(self) -> str | None:
        """Return the line of the model's code that is running; None in torch's own code."""
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename == _HERE:
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename.startswith(_TORCH):
            return None
        return relative_line(frame.f_code.co_filename, frame.f_lineno, self.root)

    def compared(self, name: str, formula: Formula, other: Formula, *, outcome: bool) -> bool:
        """Note a comparison; return how it turns out for the model."""
        place = self.place()
        if place is None:
            return outcome
        compare = COMPARISONS[name]
        decision = SizeDecision(place, lambda sizes: compare(formula(sizes), other(sizes)))
        self.sizes.setdefault((place, name), decision)
        if place != self._inverted:
            return outcome
        self._times += 1
        if self._times > _MOST_INVERTED:
            raise RecursionError(f"{place} is compared without an end")
        return not outcome

    def became_number(self, formula: Formula) -> None:
        if (place := self.place()) is not None:
            self.fixed.setdefault(place, []).append(formula)


class _Size(int):
    """A size that tracks its derivation from the axes' sizes, and records comparisons."""

    formula: Formula
    log: _Log

    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        return self.log.compared("ne", self.formula, lambda _: 0, outcome=int.__bool__(self))

    def __int__(self) -> int:
        self.log.became_number(self.formula)
        return int.__int__(self)

    def __float__(self) -> float:
        self.log.became_number(self.formula)
        return int.__float__(self)


def _size(value: int, formula: Formula, log: _Log) -> _Size:
    size = _Size(value)
    size.formula, size.log = formula, log
    return size


def _formula(value: object) -> Formula | None:
    if isinstance(value, _Size):
        return value.formula
    if isinstance(value, int):
        number = int(value)
        return lambda _: number
    return None


def _comparing(name: str) -> Callable[[_Size, object], Any]:
    plain = getattr(int, f"__{name}__")

    def compare(self: _Size, other: object) -> Any:  # noqa: ANN401 - NotImplemented, too
        outcome = plain(self, other)
        if (known := _formula(other)) is None:
            return outcome
        return self.log.compared(name, self.formula, known, outcome=outcome)

    return compare


def _computing(name: str, *, reflected: bool) -> Callable[[_Size, object], Any]:
    compute = getattr(operator, name)
    plain = getattr(int, f"__{'r' if reflected else ''}{name}__")

    def result(self: _Size, other: object) -> Any:  # noqa: ANN401 - NotImplemented, too
        value, mine, theirs = plain(self, other), self.formula, _formula(other)
        if theirs is None or value is NotImplemented:
            if isinstance(other, float):
                self.log.became_number(self.formula)
            return value
        first, second = (theirs, mine) if reflected else (mine, theirs)
        return _size(value, lambda sizes: compute(first(sizes), second(sizes)), self.log)

    return result


def _dividing(name: str) -> Callable[[_Size, object], Any]:
    plain = getattr(int, name)

    def divide(self: _Size, other: object) -> Any:  # noqa: ANN401 - NotImplemented, too
        self.log.became_number(self.formula)
        return plain(self, other)

    return divide


for _name in ("__truediv__", "__rtruediv__", "__pow__", "__rpow__"):
    setattr(_Size, _name, _dividing(_name))
for _name in COMPARISONS:
    setattr(_Size, f"__{_name}__", _comparing(_name))
for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(_Size, f"__{_name}__", _computing(_name, reflected=False))
    setattr(_Size, f"__r{_name}__", _computing(_name, reflected=True))


class _Shape(tuple[int, ...]):
    """A shape of tracked sizes: torch.Size would convert them to plain integers."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the number of elements."""
        product = 1
        for size in self:
            product = product * size
        return product


class _Watch(FunctionMode):
    """Provides tracked sizes, and follows inputs to comparisons."""

    def __init__(self, log: _Log, sizes: Sizes, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self._log = log
        # A size shared by two axes identifies neither.
        values = list(sizes.values())
        self._axes = {size: name for name, size in sizes.items() if values.count(size) == 1}
        # By identity, with the tensor's own life: (input, scale, offset).
        self._origins: dict[int, tuple[str, float, float]] = {}
        for name, tensor in inputs.items():
            self._follow(tensor, (name, 1.0, 0.0))
        self._followed = FollowedValues(log.root, inputs, log.values)

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        result = func(*args, **(kwargs or {}))
        if func in _SIZES:
            return self._noted(result)
        self._followed.called(func, args, kwargs or {}, result)
        name = getattr(func, "__name__", "")
        if args and isinstance(args[0], torch.Tensor) and id(args[0]) in self._origins:
            self._values(name, args, kwargs or {}, result)
        return result

    def _noted(self, result: Any) -> Any:  # noqa: ANN401 - a size or a shape
        if isinstance(result, int):
            return self._one(result)
        return _Shape(map(self._one, result))

    def _one(self, size: int) -> int:
        axis = self._axes.get(size)
        return size if axis is None else _size(size, operator.itemgetter(axis), self._log)

    def _follow(self, tensor: torch.Tensor, origin: tuple[str, float, float]) -> None:
        key = id(tensor)
        self._origins[key] = origin
        weakref.finalize(tensor, self._origins.pop, key, None)

    def _values(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: object
    ) -> None:
        origin = self._origins[id(args[0])]
        if name in KEEPING:
            for tensor in result if isinstance(result, list | tuple) else [result]:
                if isinstance(tensor, torch.Tensor) and id(tensor) not in self._origins:
                    self._follow(tensor, origin)
            return
        others = [_number(each) for each in (*args[1:], *kwargs.values())]
        numbers = [each for each in others if each is not None]
        if name in COMPARING or name in _LIMIT:
            for number in numbers:
                self._threshold(origin, number)
        elif name in _AFFINE and len(numbers) == 1 and isinstance(result, torch.Tensor):
            tensor, scale, offset = origin
            keeps, sign = _AFFINE[name]
            moved = (
                (scale, offset + sign * numbers[0])
                if keeps
                else (scale * numbers[0], offset * numbers[0])
            )
            self._follow(result, (tensor, *moved))

    def _threshold(self, origin: tuple[str, float, float], number: float) -> None:
        tensor, scale, offset = origin
        place = self._log.place()
        if place is None or scale == 0:
            return
        exact = (scale, offset) == (1.0, 0.0)
        self._log.thresholds[Threshold(tensor, (number - offset) / scale, exact, place)] = None


def _number(value: object) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 and value.device.type == "cpu" else None
    return (
        float(int.__int__(value))
        if isinstance(value, int)
        else (value if isinstance(value, float) else None)
    )


def find_decisions(
    module: torch.nn.Module,
    draw: Callable[[Sizes], Sequence[torch.Tensor]],
    contract: Contract,
    sizes: Sizes,
    root: str | None = None,
) -> tuple[Decisions, dict[str, frozenset[str]]]:
    """Run a model that accepts the contract's inputs; return its decisions on their sizes and
    values, and the lines where its Python converts a size to a plain number, each with the axes
    that the number depends on.

    `draw` samples its inputs at axis sizes, starting with `sizes`. Both sides of each decision are
    run, up to a few runs in total. `root` is the folder of the model's own source files. A model
    that rejects tracked sizes is analyzed as far as it ran.
    """
    log = _Log(root)
    pending: list[Sizes] = [dict(sizes)]
    seen: list[Sizes] = []
    while pending and len(seen) < _MOST_RUNS:
        here = pending.pop(0)
        seen.append(here)
        tensors = draw(here)
        named = dict(zip((spec.name for spec in contract.inputs), tensors, strict=True))
        try:
            with torch.no_grad(), _Watch(log, here, named):
                module(*tensors)
        except Exception:  # noqa: BLE001, S110 - any model may raise anything; what was seen, stays
            pass
        for decision in log.sizes.values():
            for turn in turns(decision, contract, sizes):
                pending += [
                    side
                    for side in (turn.below, turn.above)
                    if _is_new(side, decision, [*seen, *pending])
                ]
    numbers = {place: _axes_of(formulas, sizes) for place, formulas in log.fixed.items()}
    found = Decisions(
        tuple(log.sizes.values()), tuple(log.thresholds), values=tuple(log.values.values())
    )
    return found, numbers


def _axes_of(formulas: Sequence[Formula], sizes: Sizes) -> frozenset[str]:
    """Return the axes on which sizes depend: those of which some other size changes one."""

    def values(changed: Sizes) -> list[int | None]:
        found: list[int | None] = []
        for formula in formulas:
            try:
                found.append(int(formula(changed)))
            except ArithmeticError:
                found.append(None)
        return found

    here = values(sizes)
    return frozenset(
        axis
        for axis, size in sizes.items()
        if any(values({**sizes, axis: other}) != here for other in (size + 1, 2 * size + 1))
    )


def run_inverted(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    sizes: Sizes,
    root: str | None,
    inverted: str | None = None,
) -> tuple[Any, tuple[str, ...]]:
    """Run a model on one case with the comparisons of sizes at a line turned round; return its
    outputs, and the lines that compare sizes. Raises what the model raises.
    """
    log = _Log(root, inverted)
    with torch.no_grad(), _Watch(log, sizes, inputs):
        found = module(*(tensor.clone() for tensor in inputs.values()))
    return found, tuple(dict.fromkeys(place for place, _ in log.sizes))


def _is_new(side: Sizes, decision: SizeDecision, known: Sequence[Sizes]) -> bool:
    """Return True if no run so far had the decision's outcome at these sizes."""
    try:
        return all(decision.holds(other) != decision.holds(side) for other in known)
    except ArithmeticError:
        return False
