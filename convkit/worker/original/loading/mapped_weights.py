"""Runs a model whose weights are mapped from a checkpoint's files without keeping all of them in
memory.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from convkit.worker.process import mapped_pages


def exceed_budget(module: torch.nn.Module) -> bool:
    """Say whether a module's parameters and buffers, tied ones counted once, exceed the budget of
    mapped pages.
    """
    tensors = [*module.parameters(), *module.buffers()]
    size = sum(each.numel() * each.element_size() for each in tensors)
    return size > mapped_pages.BUDGET_BYTES


@contextlib.contextmanager
def dropping_pages(*, needed: bool = True) -> Iterator[None]:
    """Drop mapped weights from memory as layers end, inside the block, if that is needed.

    Results do not change: a dropped page is read from its file again when it is used. The model is
    not modified, because the hook is torch's global one.
    """
    if not needed:
        yield
        return
    budget = mapped_pages.PageBudget()

    def ended(*_: Any) -> None:  # noqa: ANN401 - a module, its inputs and outputs
        budget.enforce()

    handle = torch.nn.modules.module.register_module_forward_hook(ended)
    try:
        yield
    finally:
        handle.remove()
        budget.enforce()
