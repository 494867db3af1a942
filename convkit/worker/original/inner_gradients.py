"""Models that compute gradients in `forward` (forces from an energy, a score, Hamilton's equations)
and count on their caller to record what they are of, as torch does unless told otherwise.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.utils import _pytree as pytree

_Outputs = TypeVar("_Outputs")

# torch.autograd.grad and Tensor.backward, of what nothing was recorded for.
_UNRECORDED = "does not require grad and does not have a grad_fn"


def recording(module: torch.nn.Module, call: Callable[[], _Outputs]) -> _Outputs:
    """Call, where gradients are not recorded, what calls a module. If the module needs them, they
    are recorded in its calls from now on, and its outputs are detached from them.
    """
    try:
        return call()
    except RuntimeError as error:
        if torch.is_grad_enabled() or _UNRECORDED not in str(error):
            raise
        hooks = _Recorded.of(module)
    try:
        return call()
    except Exception:
        for hook in hooks:
            hook.remove()
        raise


class _Recorded:
    """The hooks before and after a module's calls."""

    def __init__(self) -> None:
        self._before: list[bool] = []

    @classmethod
    def of(cls, module: torch.nn.Module) -> tuple[torch.utils.hooks.RemovableHandle, ...]:
        recorded = cls()
        return (
            module.register_forward_pre_hook(recorded.enter),
            module.register_forward_hook(recorded.leave, always_call=True),
        )

    def enter(self, _module: torch.nn.Module, _inputs: object) -> None:
        self._before.append(torch.is_grad_enabled())
        torch.set_grad_enabled(True)

    def leave(self, _module: torch.nn.Module, _inputs: object, outputs: object) -> object:
        torch.set_grad_enabled(self._before.pop())
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, outputs)
