"""Lets forward's `*rest` be an argument of its own, a list, so that inputs can be bound by name."""

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# On a forward that gathers: the name of the list.
_GATHERED = "convkit_gathered"


def gather_rest(module: "torch.nn.Module") -> None:
    """Replace a module's `forward(x, *states)` by `forward(x, states=())`, which calls it; other
    modules stay as they are.
    """
    import torch

    own = module.forward
    if isinstance(module, torch.jit.ScriptModule) or gathered(module) is not None:
        return
    signature = inspect.signature(own)
    parameters = list(signature.parameters.values())
    rest = next((each for each in parameters if each.kind is each.VAR_POSITIONAL), None)
    if rest is None:
        return
    before = [each.name for each in parameters[: parameters.index(rest)]]
    any_name = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), None)
    as_list = rest.replace(
        kind=rest.POSITIONAL_OR_KEYWORD, default=(), annotation=inspect.Parameter.empty
    )
    adapted = signature.replace(
        parameters=[as_list if each is rest else each for each in parameters]
    )

    def forward(*given: object, **named: object) -> object:
        bound = adapted.bind(*given, **named)
        bound.apply_defaults()
        values = dict(bound.arguments)
        tail = values.pop(rest.name)
        others = values.pop(any_name) if any_name is not None else {}
        return own(*(values.pop(name) for name in before), *tail, **values, **others)

    forward.__signature__ = adapted  # type: ignore[attr-defined]
    setattr(forward, _GATHERED, rest.name)
    module.forward = forward


def gathered(module: "torch.nn.Module") -> str | None:
    """Return the name of the list that `gather_rest` made of the rest; None if there is none."""
    name: str | None = getattr(module.forward, _GATHERED, None)
    return name
