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
    """Return the outermost modules in training mode inside a model that is in eval mode itself.

    Of a model in training mode as a whole, nothing is known: every new module is.
    """
    if module.training:
        return ()
    paths: list[str] = []
    for path, each in module.named_modules():
        if each.training and not any(path.startswith(f"{other}.") for other in paths):
            paths.append(path)
    return tuple(paths)


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
    named = [f"{path} ({type(model.get_submodule(path)).__name__})" for path in changing]
    return Finding(
        "E306",
        f"the model comes in eval mode, except {', '.join(named)}, which changes its outputs."
        " convkit converts and verifies all of it in eval mode",
        Place(module=changing[0]),
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
