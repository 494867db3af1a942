"""Lets torch.export trace what it fails on though the model's code is right: layers given a mask of
the future, transformers' experts, and calls of a layer whose error the model's code catches.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules import transformer

_DETECTION = "_detect_is_causal_mask"


_TRACEABLE = "batched_mm"


@contextlib.contextmanager
def without_causal_detection() -> Iterator[None]:
    """While this is active, no layer looks at the values of a mask to tell whether it is causal.

    A trace cannot decide that. It is a hint only: without it, attention applies the mask as it is
    (torch's own documentation of `_detect_is_causal_mask`). A hint that the caller gives is kept.
    """
    usual = getattr(transformer, _DETECTION, None)
    if usual is None:  # another release of torch
        yield
        return
    setattr(transformer, _DETECTION, _as_given)
    try:
        yield
    finally:
        setattr(transformer, _DETECTION, usual)


def _as_given(
    mask: torch.Tensor | None,
    is_causal: bool | None = None,  # noqa: FBT001 - torch's
    size: int | None = None,
) -> bool:
    del mask, size
    return is_causal is True


@contextlib.contextmanager
def traceable_experts(module: torch.nn.Module) -> Iterator[None]:
    """While this is active, the experts of transformers' models use an implementation that can be
    traced. The verification compares it with the original's own.
    """
    with contextlib.ExitStack() as held:
        for model in _outermost(module):
            before = model.get_experts_implementation()
            if before.get("") in (None, _TRACEABLE):
                continue
            try:
                model.set_experts_implementation(_TRACEABLE)
            except (RuntimeError, ValueError):  # fixed when loaded, or unknown to this release
                continue
            held.callback(model.set_experts_implementation, before)
        yield


def _outermost(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return transformers' models that are not parts of another; releases before 5 have none."""
    if hasattr(module, "set_experts_implementation") and hasattr(
        module, "get_experts_implementation"
    ):
        return [module]
    return [model for child in module.children() for model in _outermost(child)]


@contextlib.contextmanager
def attention_in_parts() -> Iterator[None]:
    """Let `nn.MultiheadAttention` compute with single operators: the exporter has no translation of
    the one that replaces them in inference.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def with_caught_errors() -> Iterator[None]:
    """While this is active, a layer's call may raise what the model's code catches, such as the
    TypeError of `layer(x, lengths=lengths)` for a layer that takes none.

    torch's tracer keeps a stack of the layers being called and leaves a layer that raised on it;
    the next layer to end is then another than it expects.
    """
    usual = torch.fx.Tracer.call_module

    def call(
        tracer: torch.fx.Tracer,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        positional: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:  # noqa: ANN401 - what the layer returns
        depth = len(tracer.module_stack)
        try:
            return usual(tracer, module, forward, positional, named)
        except Exception:
            while len(tracer.module_stack) > depth:
                tracer.module_stack.popitem(last=True)
            tracer.num_calls[tracer.path_of_module(module)] -= 1
            raise

    torch.fx.Tracer.call_module = call
    try:
        yield
    finally:
        torch.fx.Tracer.call_module = usual
