"""How a translation of a torch operator reads its arguments in coremltools' frontend."""

from collections.abc import Callable, Sequence
from typing import Any

# Of a torch operator: it gets coremltools' context and the node.
Translation = Callable[[Any, Any], None]


def translation(write: Callable[..., Any], *, promotes: bool = False) -> Translation:
    """Return the translation whose result `write` makes: of MIL's builder, the result's name and
    the node's inputs, of one element type if it `promotes`.
    """

    def translated(context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
        from coremltools.converters.mil.frontend.torch.ops import _get_inputs, promote_input_dtypes
        from coremltools.converters.mil.mil import Builder

        inputs = _get_inputs(context, node)
        given = promote_input_dtypes(inputs) if promotes else inputs
        context.add(write(Builder, node.name, *given))

    return translated


def arguments(context: Any, node: Any, names: Sequence[str]) -> list[Any]:  # noqa: ANN401 - coremltools' frontend has no types
    """Return a node's arguments in the order of its operator's parameters, with None for absent
    ones.

    torch.export passes some by position and others by keyword; TorchScript passes all by position.
    """
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs, _get_kwinputs

    positional = list(_get_inputs(context, node))
    positional += [None] * (len(names) - len(positional))
    return [
        _get_kwinputs(context, node, name, default=[given])[0]
        for name, given in zip(names, positional, strict=True)
    ]


def is_script(context: Any) -> bool:  # noqa: ANN401 - coremltools' frontend has no types
    """Say whether a TorchScript program is converted: its operators have their names without the
    overload's, so that one name may have several lists of parameters.
    """
    from coremltools.converters.mil.frontend.torch.ops import TorchFrontend

    return bool(context.frontend == TorchFrontend.TORCHSCRIPT)


def value(given: Any) -> Any:  # noqa: ANN401
    """Return the value of a coremltools constant, or a plain value unchanged."""
    return getattr(given, "val", given)
