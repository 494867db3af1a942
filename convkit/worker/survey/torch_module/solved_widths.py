"""Solves for the width of an input that is joined with itself before the first layer reads it, as
points and their neighbors are: no layer has that width.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import torch

from convkit.protocol.contract import Dimension
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.torch_module.input_candidates import InputCandidate

# Two widths show how many channels a layer is given for each of the input's. Few: calls that fail
# are fast. As many points as neighbors are looked for among, usually.
_WIDTHS = (2, 3)
_ROWS, _POINTS = 2, 64
_WIDEST = 4096


def solved_candidates(loaded: LoadedModel, names: Sequence[str]) -> list[InputCandidate]:
    """Return inputs of rows of points, of the width with which the first layer that refuses others
    is given its own. None for a module of several inputs, or if no layer refuses a width.
    """
    if len(names) != 1:
        return []
    (name,) = names
    found = []
    for shape in (("batch", 0, "points"), ("batch", "points", 0), ("points", 0)):
        runs = [_run(loaded, name, _with_width(shape, width)) for width in _WIDTHS]
        if (width := _solved(runs)) is not None:
            found.append(InputCandidate("float32", _filled(shape, width)))
    return found


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """A layer that failed, with the width that it was given and the one that it has."""

    layer: torch.nn.Module
    given: int
    wanted: int


def _solved(runs: Sequence[_Refusal | bool]) -> int | None:
    """Return the width of the input at which a layer is given what it wants; None if what it is
    given does not grow with it, or any width will do.
    """
    if sum(run is True for run in runs) == 1:
        return _WIDTHS[runs.index(True)]
    one, other = (run if isinstance(run, _Refusal) else None for run in runs)
    if one is None or other is None or one.layer is not other.layer or one.given == other.given:
        return None
    slope = (other.given - one.given) / (_WIDTHS[1] - _WIDTHS[0])
    width = _WIDTHS[0] + (one.wanted - one.given) / slope
    return int(width) if width == int(width) and 0 < width <= _WIDEST else None


def _run(loaded: LoadedModel, name: str, shape: Sequence[int]) -> _Refusal | bool:
    """Call a module with numbers; return the layer that failed for their width, if one did, else
    whether the call worked.
    """
    entered: list[_Refusal] = []

    def enter(layer: torch.nn.Module, given: tuple[object, ...]) -> None:
        wanted, axis = _width(layer)
        first = given[0] if given else None
        if isinstance(first, torch.Tensor) and first.dim() > abs(axis):
            entered.append(_Refusal(layer, first.shape[axis], wanted))

    layers = [each for each in loaded.module.modules() if _width(each)[0]]
    with _hooked(layers, enter), contextlib.suppress(Exception), torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        loaded.module(**{name: torch.randn(*shape, generator=generator)})
        return True
    last = entered[-1] if entered else None
    return last if last is not None and last.given != last.wanted else False


@contextlib.contextmanager
def _hooked(layers: Sequence[torch.nn.Module], enter: object) -> Iterator[None]:
    hooks = [each.register_forward_pre_hook(enter) for each in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _width(layer: torch.nn.Module) -> tuple[int, int]:
    """Return the width that a layer reads, 0 for other modules, and the axis that has it."""
    match layer:
        case torch.nn.Linear():
            return layer.in_features, -1
        case torch.nn.Conv1d() | torch.nn.Conv2d():
            return layer.in_channels, 1
        case torch.nn.BatchNorm1d() | torch.nn.BatchNorm2d():
            return layer.num_features, 1
        case _:
            return 0, 0


def _filled(shape: Sequence[Dimension], width: int) -> tuple[Dimension, ...]:
    return tuple(width if size == 0 else size for size in shape)


def _with_width(shape: Sequence[Dimension], width: int) -> list[int]:
    sizes = {"batch": _ROWS, "points": _POINTS, 0: width}
    return [sizes[size] for size in shape]
