"""Attention as computed by torch, for coremltools' frontend.

coremltools 9.0 turns a boolean mask into an addition of -30000, under which the scores of a fully
masked row keep their differences: the row attends to padding, while torch returns zeros. It also
ignores `enable_gqa`, and `is_causal` as a keyword.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from convkit.runtimes.coreml.conversion.frontend_arguments import arguments, value

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
# Added to the scores of masked positions: exp then returns exactly zero relative to any other
# score, and float16 can represent it.
_MASKED = -3e4


def scaled_dot_product_attention(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    """`softmax(query @ key.T * scale + mask) @ value`, and zeros for fully masked rows.

    query, key and value have the shape [..., heads, positions, width]. Raises ValueError for
    dropout and for a variable width.
    """
    from coremltools.converters.mil.mil import Builder, types

    given = dict(zip(_NAMES, arguments(context, node, _NAMES), strict=True))
    if value(given["dropout_p"]):
        raise ValueError("attention with dropout cannot be converted: export in inference mode")
    query, key, values = given["query"], given["key"], given["value"]
    mask = given["attn_mask"]
    if value(given["is_causal"]):
        mask = _causal_mask(query, key)
    if value(given["enable_gqa"]):
        key, values = (_repeated(each, query.shape[-3]) for each in (key, values))
    scale = value(given["scale"])
    number = types.nptype_from_builtin(query.dtype)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    query = Builder.mul(x=query, y=number(factor))
    scores = Builder.matmul(x=query, y=key, transpose_y=True)
    if mask is None:
        result = Builder.matmul(x=Builder.softmax(x=scores, axis=-1), y=values, name=node.name)
        context.add(result)
        return
    added, alive = _additive(mask, number)
    weights = Builder.softmax(x=Builder.add(x=scores, y=added), axis=-1)
    if alive is None:
        result = Builder.matmul(x=weights, y=values, name=node.name)
    else:
        attended = Builder.matmul(x=weights, y=values)
        result = Builder.mul(x=attended, y=alive, name=node.name)
    context.add(result)


def _additive(mask: Any, number: type[np.floating[Any]]) -> tuple[Any, Any | None]:  # noqa: ANN401
    """Return a mask's addition to the scores, and 1 for rows with a live position, 0 for others;
    None instead if there can be no fully masked row. `number` is the scores' type.
    """
    from coremltools.converters.mil.mil import Builder, types

    kind = types.builtin_to_string(types.numpy_type_to_builtin_type(number))
    if types.is_bool(mask.dtype):
        taking_part = Builder.cast(x=mask, dtype=kind)
        added = Builder.mul(x=Builder.sub(x=number(1), y=taking_part), y=number(_MASKED))
        if mask.val is not None and np.asarray(mask.val).any(-1).all():
            return added, None
        return added, Builder.reduce_max(x=taking_part, axes=[-1], keep_dims=True)
    if not _may_be_minus_infinity(mask):
        return mask, None
    highest = Builder.reduce_max(x=mask, axes=[-1], keep_dims=True)
    lowest = number(np.finfo(number).min)
    alive = Builder.cast(x=Builder.greater_equal(x=highest, y=lowest), dtype=kind)
    return Builder.maximum(x=mask, y=lowest), alive


def _causal_mask(query: Any, key: Any) -> Any:  # noqa: ANN401
    """Return a mask in which each position attends to itself and earlier ones."""
    from coremltools.converters.mil.mil import Builder

    sizes = [
        Builder.slice_by_index(x=Builder.shape(x=each), begin=[each.rank - 2], end=[each.rank - 1])
        for each in (query, key)
    ]
    everything = Builder.fill(shape=Builder.concat(values=sizes, axis=0), value=1.0)
    return Builder.cast(x=Builder.band_part(x=everything, lower=-1, upper=0), dtype="bool")


def _repeated(tensor: Any, heads: int) -> Any:  # noqa: ANN401
    """Return keys or values with each head repeated for the queries that share it."""
    from coremltools.converters.mil.mil import Builder

    own = int(tensor.shape[-3])
    if own == heads:
        return tensor
    places = np.repeat(np.arange(own, dtype=np.int32), int(heads) // own)
    return Builder.gather(x=tensor, indices=places, axis=tensor.rank - 3)


def _may_be_minus_infinity(mask: Any) -> bool:  # noqa: ANN401
    """Return True if a constant from which a mask is computed contains minus infinity."""
    return any(
        np.isneginf(np.asarray(each.val)).any()
        for each in _sources(mask)
        if each.val is not None and np.asarray(each.val).dtype.kind == "f"
    )


def _sources(variable: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield a variable and all that it is computed from."""
    pending, seen = [variable], {id(variable)}
    while pending:
        found = pending.pop()
        yield found
        if found.op is None:
            continue
        for given in found.op.inputs.values():
            for each in given if isinstance(given, list | tuple) else (given,):
                if each is not None and id(each) not in seen and hasattr(each, "val"):
                    seen.add(id(each))
                    pending.append(each)
