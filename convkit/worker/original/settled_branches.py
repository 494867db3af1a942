"""Branches on values of which one side computes what both do, such as `if mask.any():` before what
changes nothing where nothing is masked.

torch.export cannot follow such a branch. It need not, if that side can always be taken.
"""

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.installation import PACKAGE
from convkit.worker.original.dispatch_mode import FunctionMode
from convkit.worker.original.source_lines import running_line

Inputs = tuple[torch.Tensor, ...]

# Lines that are tried, and rows that inputs are made of: each costs runs of the model.
_MOST_LINES, _MOST_ROWS = 8, 4
# By what fractions are multiplied, so that decisions turn out otherwise.
_SCALES = (-1.0, 0.25, 4.0)
# What the order of sums may change, of an output's magnitude.
_SAME = 1e-5
# By module that was traced so: its lines, and how they decide.
SETTLED: weakref.WeakKeyDictionary[torch.nn.Module, dict[str, bool]] = weakref.WeakKeyDictionary()
# Where frames are convkit's own.
_OURS = (f"{PACKAGE}/",)


def settled_sides(
    module: torch.nn.Module, calls: Sequence[Inputs], root: str | None
) -> dict[str, bool]:
    """Return the lines that turn a tensor into a Python boolean, with the outcome that may always
    be taken: on inputs that decide otherwise, the model's outputs are the same with it.

    Lines are `file:line`, relative to `root`. The inputs of `calls`, which should include small
    ones, are tried as they are, with each row in place of all, and with other magnitudes and signs.
    One that the model refuses proves nothing, nor does a line that decides alike on all of them.
    """
    expected: list[tuple[Inputs, Inputs]] = []
    seen: dict[str, set[bool]] = {}
    for each in itertools.chain.from_iterable(map(_variants, calls)):
        sides = TakenSides(root, {})
        if (found := _outputs(module, each, sides)) is not None:
            expected.append((each, found))
            for line, outcomes in sides.seen.items():
                seen.setdefault(line, set()).update(outcomes)
    settled: dict[str, bool] = {}
    for line in list(seen)[:_MOST_LINES]:
        for side in (True, False):
            trial = {**settled, line: side}
            if (not side) in seen[line] and _is_same(module, expected, trial, root):
                settled = trial
                break
    return settled


def settled_finding(sides: Mapping[str, bool]) -> Finding:
    """Return E309, which tells which branches the graph does not have."""
    first, *_ = sides
    which = ", ".join(
        f"{line} ({'taken' if side else 'not taken'})" for line, side in sides.items()
    )
    many = len(sides) > 1
    return Finding(
        "E309",
        f"the branch{'es' if many else ''} on values at {which} {'are' if many else 'is'} exported"
        " as if it were always so: on inputs that decide otherwise, the original computes the same"
        " with it",
        Place(source=first),
        {"sides": dict(sides)},
        Remedy("Nothing to do. Without the condition, the model's code would say so itself."),
    )


class TakenSides(FunctionMode):
    """While it is on, the lines of `sides` decide as they say; `seen` has what others decide."""

    def __init__(self, root: str | None, sides: Mapping[str, bool]) -> None:
        super().__init__()
        self._root = root
        self._sides = sides
        self.seen: dict[str, set[bool]] = {}

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's functions
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if func is not torch.Tensor.__bool__:
            return func(*args, **(kwargs or {}))
        line = running_line(self._root, _OURS) or ""
        if line in self._sides:
            return self._sides[line]
        found = func(*args)
        if isinstance(found, bool) and line:
            self.seen.setdefault(line, set()).add(found)
        return found


def _variants(inputs: Inputs) -> Iterator[Inputs]:
    yield inputs
    rows = min((len(each) for each in inputs if each.ndim), default=0)
    for row in range(min(rows, _MOST_ROWS) if rows > 1 else 0):
        yield tuple(
            each[row : row + 1].expand_as(each).clone() if each.ndim and len(each) > 1 else each
            for each in inputs
        )
    for scale in _SCALES:
        yield tuple(each * scale if each.dtype.is_floating_point else each for each in inputs)


def _outputs(module: torch.nn.Module, inputs: Inputs, sides: TakenSides) -> Inputs | None:
    """Return the outputs; None if the model refuses the inputs, or that side."""
    with contextlib.suppress(Exception), torch.no_grad(), sides:
        found: Inputs = module(*(each.clone() for each in inputs))
        return found
    return None


def _is_same(
    module: torch.nn.Module,
    expected: Sequence[tuple[Inputs, Inputs]],
    sides: Mapping[str, bool],
    root: str | None,
) -> bool:
    for inputs, outputs in expected:
        found = _outputs(module, inputs, TakenSides(root, sides))
        if found is None or not all(map(_equal, found, outputs)):
            return False
    return True


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.dtype.is_floating_point or not one.numel():
        return torch.equal(one, other)
    magnitude = float(other.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    return torch.allclose(
        one.double(), other.double(), rtol=0.0, atol=_SAME * magnitude, equal_nan=True
    )
