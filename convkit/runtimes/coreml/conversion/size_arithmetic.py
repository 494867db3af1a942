"""What models compute with sizes, such as the smaller of a length and a limit: operators on numbers
that torch.export keeps and that coremltools 9.0 lacks.
"""

from typing import Any

import torch

from convkit.runtimes.coreml.conversion.frontend_arguments import Translation, translation


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
