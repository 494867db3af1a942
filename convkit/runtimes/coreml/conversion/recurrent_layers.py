"""Recurrent layers for coremltools' frontend, with their last states.

coremltools 9.0 binds a layer's results to the names that TorchScript has for them; torch.export has
one for all three, so the states were lost.
"""

import copy
from functools import partial
from typing import Any

from convkit.runtimes.coreml.conversion.frontend_arguments import Translation

_RESULTS = ("sequence", "hidden", "cell")


def with_states(own: Translation) -> Translation:
    """Return a translation of `lstm` that binds its outputs, whatever they are called."""
    return partial(_lstm, own)


def _lstm(own: Translation, context: Any, node: Any) -> None:  # noqa: ANN401 - coremltools' frontend has no types
    if len(node.outputs) == len(_RESULTS):
        own(context, node)
        return
    several = copy.copy(node)
    several.outputs = [f"{node.name}_{each}" for each in _RESULTS]
    own(context, several)
    context.add(tuple(context[name] for name in several.outputs), torch_name=node.name)
