"""What models compute with sizes, such as the smaller of a length and a limit: operators on numbers
that torch.export keeps and that coremltools 9.0 lacks.
"""

from collections.abc import Callable
from typing import Any

Translation = Callable[[Any, Any], None]


def size_operators() -> dict[str, Translation]:
    """Return the translations by coremltools' name of the operator."""
    return {
        "mod": _of_two("mod"),
        "sym_max": _of_two("maximum"),
        "sym_min": _of_two("minimum"),
        "sym_float": _cast("fp32"),
        "sym_int": _cast("int32"),
        "trunc": _cast("int32"),
        "sym_not": _not,
        "sym_ite": _chosen,
        "_sym_sqrt": _square_root,
    }


def _of_two(operation: str) -> Translation:
    """Translate to an operation on two numbers. Like Python's, `mod` has the divisor's sign."""

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools has no types
        from coremltools.converters.mil.frontend.torch.ops import _get_inputs, promote_input_dtypes
        from coremltools.converters.mil.mil import Builder

        x, y = promote_input_dtypes(_get_inputs(context, node, expected=2))
        context.add(getattr(Builder, operation)(x=x, y=y, name=node.name))

    return translated


def _cast(dtype: str) -> Translation:
    """Translate to a cast, which truncates fractions."""

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401
        from coremltools.converters.mil.frontend.torch.ops import _get_inputs
        from coremltools.converters.mil.mil import Builder

        x = _get_inputs(context, node, expected=1)[0]
        context.add(Builder.cast(x=x, dtype=dtype, name=node.name))

    return translated


def _not(context: Any, node: Any) -> None:  # noqa: ANN401
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs
    from coremltools.converters.mil.mil import Builder

    x = _get_inputs(context, node, expected=1)[0]
    context.add(Builder.logical_not(x=Builder.cast(x=x, dtype="bool"), name=node.name))


def _chosen(context: Any, node: Any) -> None:  # noqa: ANN401
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs, promote_input_dtypes
    from coremltools.converters.mil.mil import Builder

    condition, *both = _get_inputs(context, node, expected=3)
    one, other = promote_input_dtypes(both)
    condition = Builder.cast(x=condition, dtype="bool")
    context.add(Builder.select(cond=condition, a=one, b=other, name=node.name))


def _square_root(context: Any, node: Any) -> None:  # noqa: ANN401
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs
    from coremltools.converters.mil.mil import Builder

    x = _get_inputs(context, node, expected=1)[0]
    context.add(Builder.sqrt(x=Builder.cast(x=x, dtype="fp32"), name=node.name))
