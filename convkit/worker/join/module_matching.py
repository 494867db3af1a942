"""What modules get and return in a run of the parts and in one of the whole: modules of both that
have the same weights, call by call.
"""

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from convkit.protocol.installation import PACKAGE
from convkit.worker.join.part_state import common_components
from convkit.worker.metrics.magnitudes import rms
from convkit.worker.original.source_lines import relative_source
from convkit.worker.original.torch_dtypes import to_array

Side = Literal["input", "output"]
# Beyond this, a run is not recorded: nothing is compared.
_MOST_BYTES = 2**31
# From this relative difference on, two calls' values are not the same.
_APART = 1e-3
# Modules that pass values on, and modules that take no hooks.
_IDLE = (torch.nn.Identity, torch.nn.Dropout, torch.jit.ScriptModule)
_OUTSIDE = (str(Path(torch.__file__).parent), str(PACKAGE), "<")


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedModule:
    """A module of a part, and the module of the whole with the same weights."""

    part: str
    path: str
    module: torch.nn.Module
    other_path: str
    other: torch.nn.Module


@dataclasses.dataclass(frozen=True)
class Passed:
    """The tensors that one call of a module gets, or returns. `order` counts both kinds in a run;
    `source` is the line that calls the module.
    """

    member: MatchedModule | None
    order: int
    source: str | None
    tensors: tuple[torch.Tensor, ...]


# What passes each module of the whole, or its counterparts in the parts, in the order of calls.
Record = dict[tuple[int, Side], list[Passed]]
# Returns what to use in place of a call's tensors, given its number; None: those themselves.
Replace = Callable[[tuple[int, Side], int], Sequence[torch.Tensor] | None]


def members(parts: Mapping[str, torch.nn.Module], whole: torch.nn.Module) -> list[MatchedModule]:
    """Return the parts' modules that have one counterpart in the whole: of the same class, with the
    same tensors under the same names; among several, the one whose path has most in common.
    """
    others = [(path, each) for path, each in whole.named_modules() if _computes(each)]
    found = []
    for part, root in parts.items():
        for path, module in root.named_modules():
            alike = [other for other in others if _computes(module) and _alike(module, other[1])]
            shared = [common_components(path, other) for other, _ in alike]
            if alike and shared.count(max(shared)) == 1:
                other_path, other = alike[shared.index(max(shared))]
                found.append(MatchedModule(part, path, module, other_path, other))
    return found


def _computes(module: torch.nn.Module) -> bool:
    """Say whether a module has tensors of its own, or no modules to leave the work to."""
    if isinstance(module, _IDLE):
        return False
    return bool(_tensors(module)) or not any(True for _ in module.children())


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        **dict(module.named_parameters(recurse=False)),
        **dict(module.named_buffers(recurse=False)),
    }


def _alike(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    if type(one).__qualname__ != type(other).__qualname__:
        return False
    mine, theirs = _tensors(one), _tensors(other)
    shared = mine.keys() & theirs.keys()
    return bool(shared or not (mine or theirs)) and all(
        mine[name].shape == theirs[name].shape
        and mine[name].dtype == theirs[name].dtype
        and torch.equal(mine[name], theirs[name])
        for name in shared
    )


@contextlib.contextmanager
def recorded(
    hooked: Sequence[tuple[torch.nn.Module, int, MatchedModule | None]],
    *,
    roots: Mapping[str, str | None] | None = None,
    replace: Replace = lambda _key, _number: None,
) -> Iterator[Record]:
    """Record what passes modules while the context is open; each comes with the identity under
    which it is recorded. `roots` are the folders of the parts' own source files.
    """
    record: Record = {}
    size = 0
    order = 0

    def passed(key: tuple[int, Side], member: MatchedModule | None, value: Any) -> Any:  # noqa: ANN401
        nonlocal size, order
        leaves, spec = tree_flatten(value)
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        calls = record.setdefault(key, [])
        wanted = replace(key, len(calls))
        if wanted is not None and len(wanted) == len(places):
            for place, tensor in zip(places, wanted, strict=True):
                leaves[place] = tensor
        kept = tuple(leaves[place].detach().clone() for place in places)
        size += sum(tensor.numel() * tensor.element_size() for tensor in kept)
        if size > _MOST_BYTES:
            raise MemoryError
        root = (roots or {}).get(member.part) if member is not None else None
        calls.append(Passed(member, order, _calling_line(root), kept))
        order += 1
        return tree_unflatten(leaves, spec)

    def before(key: int, member: MatchedModule | None) -> Callable[..., Any]:
        return lambda _module, args, kwargs: passed((key, "input"), member, (args, kwargs))

    def after(key: int, member: MatchedModule | None) -> Callable[..., Any]:
        return lambda _module, _args, found: passed((key, "output"), member, found)

    with contextlib.ExitStack() as held:
        for module, key, member in hooked:
            entering = module.register_forward_pre_hook(before(key, member), with_kwargs=True)
            held.callback(entering.remove)
            held.callback(module.register_forward_hook(after(key, member)).remove)
        yield record


def _calling_line(root: str | None) -> str | None:
    """Return the innermost line of the part's own files, else the innermost outside of torch."""
    innermost = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        file = frame.f_code.co_filename
        if root is not None and file.startswith(root):
            return relative_source(file, frame.f_lineno, root)
        if innermost is None and not file.startswith(_OUTSIDE):
            innermost = relative_source(file, frame.f_lineno, root)
        frame = frame.f_back
    return innermost if root is None else None


def aligned(
    own: Sequence[Passed], other: Sequence[Passed]
) -> list[tuple[torch.Tensor, ...]] | None:
    """Return for each call of the parts what the whole has in its place; None if nothing fits.

    What the whole passes in one call may be several calls of the parts, which follow each other
    along one axis, as the tokens in a loop do.
    """
    counts = {len(each.tensors) for each in (*own, *other)}
    if len(counts) != 1 or counts == {0}:
        return None
    slots = range(counts.pop())
    fits = []
    for order in _orders(len(own), len(other)):
        pieces = [_pieces(own, other, order, slot) for slot in slots]
        if all(each is not None for each in pieces):
            fits.append(list(zip(*(each for each in pieces if each is not None), strict=True)))

    def apart(fit: Sequence[tuple[torch.Tensor, ...]]) -> float:
        return sum(distance(one.tensors, two) > _APART for one, two in zip(own, fit, strict=True))

    return min(fits, key=apart, default=None)


def _orders(own: int, other: int) -> list[list[list[int]]]:
    """Return which calls of the parts each call of the whole may correspond to: those that follow
    each other, or, if every pass of a loop has all of them, every so many.
    """
    orders = [[list(range(own))]]
    if own > other > 1 and own % other == 0:
        orders.append([list(range(first, own, other)) for first in range(other)])
    return orders


def _pieces(
    own: Sequence[Passed], other: Sequence[Passed], order: Sequence[Sequence[int]], slot: int
) -> list[torch.Tensor] | None:
    """Return the whole's tensors for each call of the parts, in one order; None if sizes differ."""
    found: dict[int, torch.Tensor] = {}
    left = [each.tensors[slot] for each in other]
    for calls in order:
        whole = left if len(order) == 1 else [left.pop(0)]
        pieces = _slices([own[call].tensors[slot] for call in calls], whole)
        if pieces is None:
            return None
        found.update(zip(calls, pieces, strict=True))
    return [found[call] for call in range(len(own))]


def _slices(
    own: Sequence[torch.Tensor], other: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    found: list[torch.Tensor] = []
    for whole in other:
        left = own[len(found) :]
        if not left or left[0].dim() != whole.dim():
            return None
        axes = [axis for axis in range(whole.dim()) if left[0].shape[axis] != whole.shape[axis]]
        if not axes:
            found.append(whole)
            continue
        if len(axes) > 1 or not (cut := _cut(left, whole, axes[0])):
            return None
        found += cut
    return found if len(found) == len(own) else None


def _cut(left: Sequence[torch.Tensor], whole: torch.Tensor, axis: int) -> list[torch.Tensor]:
    """Return as many slices as `left` needs to cover `whole`; nothing if it does not."""
    found: list[torch.Tensor] = []
    start = 0
    for each in left:
        length = each.shape[axis] if each.dim() == whole.dim() else 0
        piece = whole.narrow(axis, start, min(length, whole.shape[axis] - start))
        if not length or piece.shape != each.shape:
            return []
        found.append(piece)
        start += length
        if start == whole.shape[axis]:
            return found
    return []


def distance(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> float:
    """Return the largest difference of two calls' tensors, RMS over RMS."""
    return max((_distance(*pair) for pair in zip(found, wanted, strict=True)), default=0.0)


def _distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    mine, theirs = (to_array(each).astype(np.float64) for each in (found, wanted))
    if mine.shape != theirs.shape:
        return math.inf
    if np.array_equal(mine, theirs, equal_nan=True):
        return 0.0
    size, error = rms(theirs), rms(mine - theirs)
    return error / size if size and math.isfinite(error / size) else math.inf
