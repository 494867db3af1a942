"""Parts of a model that its source left in training mode, and what that changes."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.case import Feeds
from convkit.worker.metrics.tensor_metrics import largest_difference

if TYPE_CHECKING:
    import torch


def left_in_training(module: "torch.nn.Module") -> tuple[str, ...]:
    """Return the outermost modules in training mode inside a model that is in eval mode itself, and
    "" for a trained model that is in training mode as a whole. Every new module is: of a model
    without trained statistics, that says nothing.
    """
    if module.training:
        return ("",) if _has_trained_statistics(module) else ()
    paths: list[str] = []
    for path, each in module.named_modules():
        if each.training and not any(path.startswith(f"{other}.") for other in paths):
            paths.append(path)
    return tuple(paths)


def _has_trained_statistics(module: "torch.nn.Module") -> bool:
    """Return True if a batch norm has seen batches, or was given the statistics of some."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(
        each.running_mean is not None and bool(each.running_mean.any())
        for each in module.modules()
        if isinstance(each, _BatchNorm)
    )


def changed_by_training(module: "torch.nn.Module") -> tuple[str, ...]:
    """Return the kinds of the layers in a model that compute differently in training mode, if the
    whole model is in it; empty otherwise.
    """
    if not module.training:
        return ()
    kinds = {type(each).__name__: None for each in module.modules() if _depends_on_mode(each)}
    return tuple(kinds)


def _depends_on_mode(module: "torch.nn.Module") -> bool:
    from torch import nn
    from torch.nn.modules import batchnorm, dropout

    if isinstance(module, dropout._DropoutNd):  # noqa: SLF001 - the base of all kinds
        return module.p > 0
    if isinstance(module, batchnorm._BatchNorm | nn.RReLU):  # noqa: SLF001 - as above
        return True
    if type(module).__module__.startswith("torch."):
        return getattr(module, "dropout", 0.0) not in (0.0, None) and not any(module.children())
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and "training" in code.co_names


def training_finding(
    model: "torch.nn.Module", paths: Sequence[str], run: Callable[[], Feeds]
) -> Finding | None:
    """Return E306 if the outputs of `run` depend on the mode that these modules came in."""
    if not paths:
        return None
    expected = run()
    changing = []
    for path in paths:
        with _in_training(model.get_submodule(path)):
            if largest_difference(expected, run()) != 0.0:  # NaN counts
                changing.append(path)
    if not changing:
        return None
    if changing == [""]:
        came = "the model comes in training mode, and its trained statistics give other outputs."
    else:
        named = [f"{path} ({type(model.get_submodule(path)).__name__})" for path in changing]
        came = (
            f"the model comes in eval mode, except {', '.join(named)}, which changes its outputs."
        )
    return Finding(
        "E306",
        f"{came} convkit converts and verifies all of it in eval mode",
        Place(module=changing[0] or None),
        {"modules": changing},
        Remedy(
            "Call eval() on the whole model before you return it. If these modules are meant to"
            " compute as in training, write that computation into their forward."
        ),
    )


@contextlib.contextmanager
def _in_training(module: "torch.nn.Module") -> Iterator[None]:
    """Put a module into training mode; buffers and random numbers are as before afterwards."""
    import torch

    buffers = {buffer: buffer.clone() for buffer in module.buffers()}
    with torch.random.fork_rng(devices=[]):
        module.train()
        try:
            yield
        finally:
            module.eval()
            for buffer, values in buffers.items():
                buffer.copy_(values)
