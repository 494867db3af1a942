"""Models that compute gradients in `forward` (forces from an energy, a score, Hamilton's equations)
and count on their caller to record what they are of, as torch does unless told otherwise.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch._functorch import eager_transforms, vmap
from torch.utils import _pytree as pytree

_Outputs = TypeVar("_Outputs")

# What every gradient goes through, in reverse and forward, and what maps a function over rows; by
# these names, wherever they are called from.
_WAYS = (
    (torch.autograd, "_engine_run_backward"),
    (eager_transforms, "jvp_increment_nesting"),
    (vmap, "vmap_increment_nesting"),
)
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


def computes_gradients(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Say whether a module computes gradients, or maps a function over rows, in a call."""
    seen: list[str] = []
    with _noting(seen), contextlib.suppress(Exception):
        module(*(each.clone() for each in inputs))
    return bool(seen)


@contextlib.contextmanager
def _noting(seen: list[str]) -> Iterator[None]:
    """Note calls of the ways that this release of torch has, inside the block."""
    usual = [(place, name, getattr(place, name)) for place, name in _WAYS if hasattr(place, name)]

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> object:
            seen.append(name)
            return function(*args, **kwargs)

        return call

    for place, name, function in usual:
        setattr(place, name, noted(name, function))
    try:
        yield
    finally:
        for place, name, function in usual:
            setattr(place, name, function)


@contextlib.contextmanager
def with_plain_gradients() -> Iterator[None]:
    """Have `torch.func.grad` compute as `torch.autograd.grad` does, inside the block: what wraps
    its tensors takes the sizes of a trace for numbers.
    """
    usual = eager_transforms.grad_impl

    def plain(
        function: Callable[..., Any],
        argnums: int | tuple[int, ...],
        has_aux: bool,  # noqa: FBT001 - torch's
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> object:
        places = (argnums,) if isinstance(argnums, int) else argnums
        chosen = [args[each] for each in places]
        if not all(isinstance(each, torch.Tensor) and _is_unwrapped(each) for each in chosen):
            return usual(function, argnums, has_aux, args, kwargs)
        keeps = torch.is_grad_enabled()
        with torch.enable_grad():
            own = [x if x.requires_grad else x.detach().requires_grad_() for x in chosen]
            given = list(args)
            for place, x in zip(places, own, strict=True):
                given[place] = x
            returned = function(*given, **kwargs)
            value, aux = returned if has_aux else (returned, None)
            found = torch.autograd.grad(value, own, create_graph=keeps)
        gradients = found[0] if isinstance(argnums, int) else tuple(found)
        return (gradients, aux) if has_aux else gradients

    eager_transforms.grad_impl = plain
    try:
        yield
    finally:
        eager_transforms.grad_impl = usual


def _is_unwrapped(tensor: torch.Tensor) -> bool:
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001 - no public name


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
