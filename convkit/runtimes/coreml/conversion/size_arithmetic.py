"""Sizes: what models compute with them, such as the smaller of a length and a limit, which
coremltools 9.0 lacks, and what it loses of them. A size of 1 that it takes for unknown is not
squeezed.
"""

from typing import Any

import torch

from convkit.runtimes.coreml.conversion.frontend_arguments import (
    Translation,
    arguments,
    translation,
    value,
)


def size_operators() -> dict[str, Translation]:
    """Return the translations by coremltools' name of the operator."""
    whole = translation(lambda mb, name, x: mb.cast(x=x, dtype="int32", name=name))
    return {
        # Like Python's, it has the divisor's sign.
        "mod": translation(lambda mb, name, x, y: mb.mod(x=x, y=y, name=name), promotes=True),
        "sym_max": translation(
            lambda mb, name, x, y: mb.maximum(x=x, y=y, name=name), promotes=True
        ),
        "sym_min": translation(
            lambda mb, name, x, y: mb.minimum(x=x, y=y, name=name), promotes=True
        ),
        "sym_numel": translation(
            lambda mb, name, x: mb.reduce_prod(x=mb.shape(x=x), keep_dims=False, name=name)
        ),
        "sym_float": translation(lambda mb, name, x: mb.cast(x=x, dtype="fp32", name=name)),
        # Fractions are truncated.
        "sym_int": whole,
        "trunc": whole,
        "sym_not": translation(
            lambda mb, name, x: mb.logical_not(x=mb.cast(x=x, dtype="bool"), name=name)
        ),
        "sym_ite": translation(_chosen),
        "_sym_sqrt": translation(
            lambda mb, name, x: mb.sqrt(x=mb.cast(x=x, dtype="fp32"), name=name)
        ),
    }


def rounded_size(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`math.ceil` and `math.floor` of a size: a whole number, where torch's of a tensor is none."""
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs
    from coremltools.converters.mil.mil import Builder

    if not isinstance((node.meta or {}).get("val"), int | torch.SymInt):
        own(context, node)
        return
    rounded = Builder.ceil if node.kind == "ceil" else Builder.floor
    (x,) = _get_inputs(context, node)
    whole = rounded(x=Builder.cast(x=x, dtype="fp32"))
    context.add(Builder.cast(x=whole, dtype="int32", name=node.name))


def _chosen(mb: Any, name: str, condition: Any, *both: Any) -> Any:  # noqa: ANN401 - coremltools has no types
    from coremltools.converters.mil.frontend.torch.ops import promote_input_dtypes

    one, other = promote_input_dtypes(both)
    return mb.select(cond=mb.cast(x=condition, dtype="bool"), a=one, b=other, name=name)


def whole_number(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`int` of a known number in an array of one element, which Python converts no more: a product
    of fixed sizes in TorchScript.
    """
    from coremltools.converters.mil.mil import Builder

    x = context[node.inputs[0]]
    known = getattr(x, "val", None)
    if known is None or getattr(known, "size", 0) != 1:
        own(context, node)
        return
    context.add(Builder.const(val=int(known.item()), name=node.name), node.name)


def squeeze(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401
    """`squeeze` of dimensions that torch knows to be 1: coremltools leaves those of which it does
    not know it.
    """
    from coremltools.converters.mil.mil import Builder

    x, dims = arguments(context, node, ("self", "dim"))
    known = (node.meta or {}).get("val")
    dims = value(dims)
    if known is None or dims is None or x.rank == known.dim():
        own(context, node)
        return
    chosen = {int(dim) % x.rank for dim in (dims if hasattr(dims, "__len__") else [dims])}
    if x.rank - len(chosen) != known.dim() or all(x.shape[dim] == 1 for dim in chosen):
        own(context, node)
        return
    is_chosen = [dim in chosen for dim in range(x.rank)]
    everything = [True] * x.rank
    found = Builder.slice_by_index(
        x=x,
        begin=[0] * x.rank,
        end=[1] * x.rank,
        begin_mask=everything,
        end_mask=[not each for each in is_chosen],
        squeeze_mask=is_chosen,
        name=node.name,
    )
    context.add(found)
