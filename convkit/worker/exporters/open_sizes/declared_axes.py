"""The contract's axes as torch.export takes them."""

import contextlib
from collections.abc import Iterator

import torch

from convkit.protocol.contract import Contract, dimension_axes


def dynamic_shapes(contract: Contract) -> tuple[dict[int, object], ...]:
    """Return one dimension object for each axis that varies, shared by all inputs.

    Arithmetic over axes is left to torch, which has no sums of dimensions: AUTO infers it from the
    model's code.
    """
    dimensions: dict[str, object] = {
        axis.name: torch.export.Dim(axis.name, min=axis.min, max=axis.max)
        for axis in contract.axes
        if axis.min < axis.max
    }
    return tuple(
        {
            index: dimensions.get(text, torch.export.Dim.AUTO)
            for index, text in enumerate(spec.shape)
            if isinstance(text, str)
            and (text in dimensions or not dimensions.keys().isdisjoint(dimension_axes(text)))
        }
        for spec in contract.inputs
    )


@contextlib.contextmanager
def shared_axes(module: torch.nn.Module, contract: Contract) -> Iterator[None]:
    """While this is active, a trace of the module knows which axes of its inputs are of one size.

    From a dimension object that two inputs share, torch.export learns it when the trace has ended:
    until then it cannot know that two batches, joined, have two equal halves.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for number, spec in enumerate(contract.inputs):
        for index, text in enumerate(spec.shape):
            if isinstance(text, str):
                places.setdefault(text, []).append((number, index))

    def state(_: torch.nn.Module, tensors: tuple[torch.Tensor, ...]) -> None:
        for first, *others in places.values():
            size = tensors[first[0]].shape[first[1]]
            for number, index in others:
                torch._check(tensors[number].shape[index] == size)  # noqa: SLF001 - documented

    hook = module.register_forward_pre_hook(state)
    try:
        yield
    finally:
        hook.remove()
