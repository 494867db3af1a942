"""How a translation of a torch operator reads its arguments in coremltools' frontend."""

from collections.abc import Sequence
from typing import Any


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


def value(given: Any) -> Any:  # noqa: ANN401
    """Return the value of a coremltools constant, or a plain value unchanged."""
    return getattr(given, "val", given)
