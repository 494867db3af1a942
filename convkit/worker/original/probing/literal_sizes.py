"""Literal sizes in a model's code: a number in place of an axis's size, proven by the model itself,
which accepts other sizes once that number follows the axis.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.original.dispatch_mode import FunctionMode
from convkit.worker.original.source_lines import relative_source

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# Functions that take sizes.
_SIZED = frozenset(
    (
        *("reshape", "view", "expand", "broadcast_to", "unflatten", "repeat", "tile", "resize_"),
        *("ones", "zeros", "full", "empty", "arange", "linspace", "eye", "tril_indices"),
        *("new_ones", "new_zeros", "new_full", "split", "chunk", "narrow", "repeat_interleave"),
    )
)
# Numbers that are tried: each costs a run of the original for every axis.
_MOST_TRIED = 24


@dataclasses.dataclass(frozen=True)
class SizeNumber:
    """A plain number in a call: the line, the function, its place among the arguments."""

    source: str
    function: str
    place: int
    value: int


class SizeNumbers(FunctionMode):
    """Notes the plain numbers that the model's own code passes to functions that take sizes, and
    replaces one of them.
    """

    def __init__(
        self, root: str | None, replaced: SizeNumber | None = None, size: int = 0, *, least: int = 2
    ) -> None:
        """`least` is the smallest number that is noted."""
        super().__init__()
        self._least = least
        self._root = root
        self._replaced = replaced
        self._size = size
        self.found: dict[SizeNumber, None] = {}

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 - torch's signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's signature
        name = getattr(func, "__name__", "")
        if name not in _SIZED:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)  # noqa: SLF001 - the caller is the code that has the number
        source = relative_source(frame.f_code.co_filename, frame.f_lineno, self._root)
        if source is None:
            return func(*args, **(kwargs or {}))
        leaves, form = tree_flatten((tuple(args), dict(kwargs or {})))
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, int) and not isinstance(leaf, bool) and leaf >= self._least:
                number = SizeNumber(source, name, place, leaf)
                self.found.setdefault(number)
                if number == self._replaced:
                    leaves[place] = self._size
        given, named = tree_unflatten(leaves, form)
        return func(*given, **named)


def literal_size(
    module: "ContractModule",
    inputs: Sequence[torch.Tensor],
    sizes: Mapping[str, int],
    root: str | None,
) -> Finding | None:
    """Return C106 for a number in the model's code that stands for an axis's size.

    `inputs` are at sizes that the model refuses, or for which its outputs have other shapes
    than declared. The proof: with the axis's size in place of the number, the outputs are as
    declared. None if no number is to blame.
    """
    noting = SizeNumbers(root)
    if _fits(module, inputs, sizes, noting):
        return None
    for number in list(noting.found)[:_MOST_TRIED]:
        for axis, size in _axes(module.contract, sizes, number.value):
            if _fits(module, inputs, sizes, SizeNumbers(root, number, size)):
                return _finding(number, axis, size)
    return None


def _axes(contract: Contract, sizes: Mapping[str, int], value: int) -> Iterator[tuple[str, int]]:
    # Two axes may have one size here: the number is more likely the one that it is typical of.
    for axis in sorted(contract.axes, key=lambda axis: axis.typical != value):
        if axis.min < axis.max and sizes[axis.name] != value:
            yield axis.name, sizes[axis.name]


def _fits(
    module: "ContractModule",
    inputs: Sequence[torch.Tensor],
    sizes: Mapping[str, int],
    numbers: SizeNumbers,
) -> bool:
    """Return True if the outputs have their declared shapes."""
    try:
        with torch.no_grad(), numbers:
            outputs = module(*(tensor.clone() for tensor in inputs))
    except Exception:  # noqa: BLE001 - a model may raise anything at sizes that it refuses
        return False
    pairs = zip(module.contract.outputs, outputs, strict=True)
    return all(spec.fits(tuple(output.shape), sizes) for spec, output in pairs)


def _finding(number: SizeNumber, axis: str, size: int) -> Finding:
    return Finding(
        "C106",
        f"axis {axis!r} is fixed at {number.value} in the model's own code, in {number.function}()"
        f" at {number.source}: with {size} in place of that number, the original accepts {axis}"
        f" {size}",
        Place(tensor=axis, source=number.source),
        {"axis": axis, "fixed": number.value, "function": number.function, "proven": True},
        Remedy(f"Take the size from the tensor's shape, so that {axis!r} can vary."),
    )
