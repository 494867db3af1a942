"""Values of its inputs that a model's Python reads: an export keeps those of the example that it
was made with, so each that matters must be one that some case changes.

`float(x.max())`, `if x.any()`, `x.numpy()`: what a trace calls constants. Whether a value matters
is asked of the model itself: it runs again with the value altered.
"""

import functools
import inspect
import math
import operator
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from convkit.worker.original import dispatch_mode
from convkit.worker.original.dispatch_mode import FunctionMode
from convkit.worker.original.source_lines import relative_line

_TORCH = str(Path(torch.__file__).parent)
_OURS = (str(Path(__file__).parent), dispatch_mode.__file__)
# Functions that give Python what a tensor holds.
_READING = frozenset((
    "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__", "item",
    "tolist", "numpy", "__array__", "is_nonzero", "equal", "allclose",
))  # fmt: skip
# Relative difference from which outputs differ by more than a trace's other order of operations.
_SAME = 1e-4
# Large, and its square is still a number in float32.
_LARGE = 1e4
# Lines that are asked about: each costs a few runs of the original.
_MOST_LINES = 4

Inputs = Sequence[torch.Tensor]


class ReadValues(FunctionMode):
    """Records the lines of a model's code that read values which its inputs change, with the first
    value of each; `altered` gives those of one line another value.
    """

    def __init__(
        self, root: str | None, line: str | None = None, alter: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__()
        self._root = root
        self._altered, self._alter = line, alter
        self._depending: set[int] = set()
        self.lines: dict[str, Any] = {}

    def follow(self, inputs: Inputs) -> None:
        """Follow what is computed from these tensors."""
        for tensor in inputs:
            self._note(tensor)

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        result = func(*args, **(kwargs or {}))
        if not any(map(self._depends, (*args, *(kwargs or {}).values()))):
            return result
        if getattr(func, "__name__", "") in _READING:
            return self._read(result)
        for each in result if isinstance(result, list | tuple) else [result]:
            if isinstance(each, torch.Tensor):
                self._note(each)
        return result

    def _read(self, value: Any) -> Any:  # noqa: ANN401 - what a tensor holds
        line = self._line()
        if line is None:
            return value
        self.lines.setdefault(line, value)
        if line != self._altered or self._alter is None:
            return value
        return self._alter(value)

    def _depends(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return any(map(self._depends, value))
        return isinstance(value, torch.Tensor) and id(value) in self._depending

    def _note(self, tensor: torch.Tensor) -> None:
        key = id(tensor)
        if key not in self._depending:
            self._depending.add(key)
            weakref.finalize(tensor, self._depending.discard, key)

    def _line(self) -> str | None:
        """Return the line of the model's code that is running; None in torch's own code, which
        reads values to check or to print them.
        """
        frame = models_frame()
        return (
            None
            if frame is None
            else relative_line(frame.f_code.co_filename, frame.f_lineno, self._root)
        )


def models_frame() -> FrameType | None:
    """Return the frame of the model's code that is running; None in torch's own code."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return None if frame is None or frame.f_code.co_filename.startswith(_TORCH) else frame


def lines_read(module: torch.nn.Module, inputs: Inputs, root: str | None) -> dict[str, Any]:
    """Return the lines that read values which depend on the inputs, with what they read first; none
    of a model that refuses the inputs.
    """
    return _run(module, inputs, ReadValues(root))[1]


def parting_inputs(
    module: torch.nn.Module, first: Inputs, others: Iterable[Inputs], root: str | None
) -> dict[str, int]:
    """Return the place in `others` of the first inputs for which the model, traced on `first`,
    computes something else than it does untraced, by the line that reads another value there.

    Inputs that the model refuses are left out. Empty for a model that cannot be traced.
    """
    known = lines_read(module, first, root)
    traced = _traced(module, first) if known else None
    if traced is None:
        return {}
    for place, inputs in enumerate(others):
        expected, lines = _run(module, inputs, ReadValues(root))
        if expected is None or not (changed := _changed(known, lines)):
            continue
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = traced(*(tensor.clone() for tensor in inputs))
            except Exception:  # noqa: BLE001 - a trace that fails parts from the model, too
                return {changed[0]: place}
        if part(expected, _tensors(found)):
            return {changed[0]: place}
    return {}


def untried_lines(
    module: torch.nn.Module, inputs: Inputs, tried: Iterable[str], root: str | None
) -> list[str]:
    """Return the lines besides `tried` that read a value of the inputs which matters: with it
    altered, the model computes something else.

    A guard against what is not finite, which the altered value only pretends, is none of them.
    """
    known = lines_read(module, inputs, root)
    left = [line for line in known if line not in set(tried)][:_MOST_LINES]
    if not left:
        return []
    expected, _ = _run(module, inputs, ReadValues(root))
    guards = _of_guards(module, inputs, known, root)
    return [
        line
        for line in left
        if line not in guards
        and expected is not None
        and any(
            found is not None and part(expected, found)
            for alter in _alterations(known[line])
            for found, _ in [_run(module, inputs, ReadValues(root, line, alter))]
        )
    ]


def _of_guards(
    module: torch.nn.Module, inputs: Inputs, known: Mapping[str, Any], root: str | None
) -> set[str]:
    """Return the lines that read another truth once inputs hold NaN or infinity, and not for large
    values.
    """

    def turned(values: Iterable[float]) -> set[str]:
        found: set[str] = set()
        for value in values:
            mode = ReadValues(root)
            filled = [
                torch.full_like(each, value) if each.is_floating_point() else each
                for each in inputs
            ]
            _run(module, filled, mode)
            found |= {
                line
                for line, read in mode.lines.items()
                if isinstance(read, bool) and read != known.get(line, read)
            }
        return found

    return turned((math.nan, math.inf)) - turned((_LARGE, -_LARGE))


def _alterations(value: object) -> Iterator[Callable[[Any], Any]]:
    """Yield what makes another value of one that was read, of the same type."""
    if isinstance(value, bool):
        yield operator.not_
    elif isinstance(value, int | float):
        for change in (1, 1000, -1000):
            yield functools.partial(operator.add, change)
        if isinstance(value, float):
            yield functools.partial(operator.mul, 1e-6)
    elif isinstance(value, np.ndarray) and value.dtype.kind == "f":
        for factor in (np.float32(-1.0), np.float32(1e3)):
            yield functools.partial(_times, factor)


def _times(factor: np.float32, values: np.ndarray) -> np.ndarray:
    return (values * factor).astype(values.dtype)


def _run(
    module: torch.nn.Module, inputs: Inputs, mode: ReadValues
) -> tuple[list[torch.Tensor] | None, dict[str, Any]]:
    """Return a run's outputs and the lines that read values; no outputs if the model refuses."""
    with torch.no_grad():
        return outputs_under(mode, module, inputs), mode.lines


def outputs_under(
    mode: ReadValues, module: torch.nn.Module, inputs: Inputs
) -> list[torch.Tensor] | None:
    """Return what a model returns for copies of inputs, followed by a mode; None if it refuses."""
    copies = [tensor.clone() for tensor in inputs]
    mode.follow(copies)
    try:
        with mode:
            return _tensors(module(*copies))
    except Exception:  # noqa: BLE001 - a model may raise anything
        return None


def _traced(module: torch.nn.Module, inputs: Inputs) -> Callable[..., Any] | None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each value that Python reads
        try:
            copies = tuple(tensor.clone() for tensor in inputs)
            traced: Callable[..., Any] = torch.jit.trace(
                module, copies, check_trace=False, strict=False
            )
        except Exception:  # noqa: BLE001 - a model may raise anything; then this proves nothing
            return None
    return traced


def _tensors(found: object) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(found)  # noqa: SLF001 - torch's own
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _changed(known: Mapping[str, Any], lines: Mapping[str, Any]) -> list[str]:
    return [line for line, value in lines.items() if line in known and _other(known[line], value)]


def _other(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return not np.array_equal(np.asarray(one), np.asarray(other))
    return one != other


def outputs_of(module: torch.nn.Module, inputs: Inputs) -> list[torch.Tensor] | None:
    """Return what a model returns for copies of inputs; None if it refuses them."""
    try:
        with torch.no_grad():
            return _tensors(module(*(tensor.clone() for tensor in inputs)))
    except Exception:  # noqa: BLE001 - a model may raise anything
        return None


def part(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> bool:
    """Return whether outputs differ by more than an order of operations explains."""
    if len(expected) != len(found):
        return True
    for one, other in zip(expected, found, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return True
        if one.is_floating_point():
            most = float(one.abs().nan_to_num(0, 0, 0).max()) if one.numel() else 0.0
            if not torch.allclose(one, other, rtol=_SAME, atol=_SAME * most, equal_nan=True):
                return True
        elif not torch.equal(one, other):
            return True
    return False
