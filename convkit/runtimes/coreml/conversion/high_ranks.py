"""A conversion pass for coremltools: windows cut out of images (Swin), at any batch size.

Cutting reshapes to six dimensions, transposes and reshapes again. Core ML supports at most five;
coremltools 9.0 rewrites the pattern only if every size is fixed. Dimensions that stay adjacent can
be merged, which is enough for windows, whatever the batch.
"""

import itertools
from collections.abc import Sequence
from typing import Any

MERGING = "convkit::merge_high_ranks"
BEFORE = "common::expand_high_rank_reshape_and_transpose"
# Core ML's own limit.
_MOST_DIMENSIONS = 5


def register() -> str:
    """Register the pass with coremltools if necessary; return its name."""
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    if MERGING not in PASS_REGISTRY:

        class MergeHighRanks(AbstractGraphPass):
            """Merges dimensions in every function."""

            def apply(self, prog: Any) -> None:  # noqa: ANN401 - coremltools has no types
                for function in prog.functions.values():
                    _merge_in(function)

        namespace, _, name = MERGING.partition("::")
        PASS_REGISTRY.add(namespace, MergeHighRanks, override=False, name=name)
    return MERGING


def _merge_in(block: Any) -> None:  # noqa: ANN401
    with block:
        for operation in list(block.operations):
            for inner in operation.blocks:
                _merge_in(inner)
            if (found := _pattern(operation, block)) is not None:
                _rewrite(found, block)


def _pattern(operation: Any, block: Any) -> tuple[Any, Any, Any] | None:  # noqa: ANN401
    """Return a reshape to many dimensions, the transpose of it, and the reshape back."""
    if operation.op_type != "reshape" or operation.outputs[0].rank <= _MOST_DIMENSIONS:
        return None
    found = [operation]
    for kind in ("transpose", "reshape"):
        (result,) = found[-1].outputs
        users = result.child_ops
        if len(users) != 1 or users[0].op_type != kind or result in block.outputs:
            return None
        found.append(users[0])
    if found[2].outputs[0].rank > _MOST_DIMENSIONS:
        return None
    return found[0], found[1], found[2]


def _rewrite(pattern: tuple[Any, Any, Any], block: Any) -> None:  # noqa: ANN401
    """Replace the pattern by one with merged dimensions, if at most one variable size is left."""
    from coremltools.converters.mil.mil import Builder

    first, transposition, last = pattern
    groups = merged_axes([int(axis) for axis in transposition.perm.val])
    order = sorted(groups)
    sizes = [_size([first.outputs[0].shape[axis] for axis in group]) for group in order]
    if len(groups) > _MOST_DIMENSIONS or sizes.count(-1) > 1:
        return
    split = Builder.reshape(x=first.x, shape=sizes, before_op=first)
    turned = Builder.transpose(
        x=split, perm=[order.index(group) for group in groups], before_op=first
    )
    back = Builder.reshape(x=turned, shape=last.shape, name=last.name, before_op=last)
    if block.try_replace_uses_of_var_after_op(
        anchor_op=back.op, old_var=last.outputs[0], new_var=back
    ):
        block.remove_ops(list(pattern))


def merged_axes(permutation: Sequence[int]) -> list[tuple[int, ...]]:
    """Return a permutation's axes in its order, those together that stay side by side."""
    places = enumerate(permutation)
    return [
        tuple(axis for _, axis in group)
        for _, group in itertools.groupby(places, key=lambda pair: pair[1] - pair[0])
    ]


def _size(sizes: Sequence[Any]) -> int:
    """Return the product of sizes, -1 if one of them varies."""
    from coremltools.converters.mil.mil.types.symbolic import is_symbolic

    product = 1
    for size in sizes:
        if is_symbolic(size):
            return -1
        product *= int(size)
    return product
