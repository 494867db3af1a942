"""Weights and constants in which a part differs from the original of the whole: tensors with the
same path in both modules, but with other values. Each can be exchanged for the original's, to prove
that it makes the joined outputs wrong.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

# Two tensors belong together if at least so many last components of their paths are equal
# (`self_attn.q_proj.weight`), or the part's whole path: `weight` alone is everywhere.
_COMMON_COMPONENTS = 2


@dataclasses.dataclass(frozen=True, eq=False)
class PartTensor:
    """A parameter, a buffer or a plain attribute of a module."""

    path: str
    module: "torch.nn.Module"
    name: str
    value: "torch.Tensor"


@dataclasses.dataclass(frozen=True, eq=False)
class StateDifference:
    """A part's tensor, and the original's tensor of the same path, which has other values."""

    part: str
    own: PartTensor
    original: PartTensor

    @property
    def where(self) -> str:
        """Which values differ: how many, and the smallest slice that has all of them."""
        differs = _differs(self.own, self.original).numpy()
        if differs.all():
            return "all values"
        spans = [np.flatnonzero(differs.any(axis=_but(differs.ndim, axis)))[[0, -1]]
                 for axis in range(differs.ndim)]  # fmt: skip
        inside = ", ".join(
            ":" if (first, last) == (0, size - 1) else f"{first}:{last + 1}"
            for (first, last), size in zip(spans, differs.shape, strict=True)
        )
        return f"{differs.sum()} of {differs.size} values, inside [{inside}]"


def _but(axes: int, kept: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(axes) if axis != kept)


def differences(
    parts: Mapping[str, "torch.nn.Module"], whole: "torch.nn.Module"
) -> list[StateDifference]:
    """Return the parts' tensors that differ from those of the whole with the same path. A tensor
    that could be one of several of the whole is left out.
    """
    by_name: dict[str, list[PartTensor]] = {}
    for tensor in _tensors(whole):
        by_name.setdefault(tensor.name, []).append(tensor)
    found = []
    for part, module in parts.items():
        for own in _tensors(module):
            candidates = _counterparts(own, by_name.get(own.name, ()))
            if len(candidates) == 1 and bool(_differs(own, candidates[0]).any()):
                found.append(StateDifference(part, own, candidates[0]))
    return found


def _tensors(module: "torch.nn.Module") -> Iterator[PartTensor]:
    import torch

    for path, each in module.named_modules(remove_duplicate=False):
        plain = ((name, value) for name, value in vars(each).items()
                 if isinstance(value, torch.Tensor))  # fmt: skip
        own = (each.named_parameters(recurse=False), each.named_buffers(recurse=False), plain)
        for kind in own:
            for name, value in kind:
                yield PartTensor(f"{path}.{name}" if path else name, each, name, value)


def _counterparts(own: PartTensor, candidates: Sequence[PartTensor]) -> list[PartTensor]:
    """Return the tensors of the whole whose path has the longest end in common with `own`."""
    alike = [
        (common_components(own.path, each.path), each)
        for each in candidates
        if each.value.shape == own.value.shape and each.value.dtype == own.value.dtype
    ]
    longest = max((length for length, _ in alike), default=0)
    if longest < min(_COMMON_COMPONENTS, own.path.count(".") + 1):
        return []
    return [each for length, each in alike if length == longest]


def common_components(one: str, other: str) -> int:
    """Return how many last components of two paths are equal."""
    length = 0
    for first, second in zip(reversed(one.split(".")), reversed(other.split(".")), strict=False):
        if first != second:
            break
        length += 1
    return length


def _differs(own: PartTensor, other: PartTensor) -> "torch.Tensor":
    """Return which values differ; NaN equals NaN."""
    first, second = own.value.detach().cpu(), other.value.detach().cpu()
    return (first != second) & ~(first.isnan() & second.isnan())


@contextlib.contextmanager
def exchanged(found: Sequence[StateDifference]) -> Iterator[None]:
    """Put the original's tensors in place of the parts' own while the context is open."""
    import torch

    def wanted(each: StateDifference) -> "torch.Tensor":
        value = each.original.value
        if isinstance(each.own.value, torch.nn.Parameter):
            return torch.nn.Parameter(value.detach(), requires_grad=False)
        return value.detach()

    try:
        for each in found:
            setattr(each.own.module, each.own.name, wanted(each))
        yield
    finally:
        for each in found:
            setattr(each.own.module, each.own.name, each.own.value)
