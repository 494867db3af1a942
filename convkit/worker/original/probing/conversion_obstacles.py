"""Asks the original itself why it cannot be converted: whether it is deterministic, whether it
branches on values, and which of its own lines fixes a size.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.original.probing.literal_sizes import literal_size
from convkit.worker.original.probing.nondeterminism import unsteady_finding
from convkit.worker.original.probing.refused_inputs import own_line
from convkit.worker.original.probing.value_branches import value_dependent_lines

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.probing.contract_probe import Examples, Probe

# Samples of the same sizes that a model is traced with.
_TURNS = (1, 2, 3)
# Sizes of an axis, from its smallest on, among which another one is chosen.
_CHOICES = 16


def blame(
    module: "ContractModule", examples: "Examples", probe: "Probe", root: str | None
) -> Finding | None:
    """Return the finding on the model's own code that explains a failed export or build.

    N303 if the model returns something else when it runs again, E305 if it computes by values that
    Python reads, C106 or C113 if it refuses other sizes. None if it does none of this. `root` is
    the folder of the model's source files.
    """
    return (
        unsteady_finding(module, probe.inputs, root)
        or decided_by_values(module, examples, probe, root)
        or _refused_size(module, examples, probe, root)
    )


def decided_by_values(
    module: "ContractModule", examples: "Examples", probe: "Probe", root: str | None
) -> Finding | None:
    """Return E305 if traces on other values of the same sizes compute something else: then values
    that Python reads are to blame, not sizes.
    """
    lines = value_dependent_lines(module, probe.inputs, root)
    if not lines:
        return None
    expected = _traced_outputs(module, probe.inputs, probe.inputs)
    for inputs in other_values(examples, probe):
        found = _traced_outputs(module, inputs, probe.inputs)
        if expected is not None and found is not None and _differ(expected, found):
            return _values_decide(lines)
    return None


def other_values(examples: "Examples", probe: "Probe") -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield inputs of the probe's sizes with other values: other samples, floats of the other
    sign, and whole numbers that end early, as shorter masks do.
    """
    for turn in _TURNS:
        yield examples.draw(probe.sizes, turn=turn)
    yield tuple(-each if each.is_floating_point() else each for each in probe.inputs)
    yield tuple(each if each.is_floating_point() else _shortened(each) for each in probe.inputs)


def _shortened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim == 0 or tensor.numel() == 0:
        return tensor
    shorter = tensor.clone()
    shorter[..., (tensor.shape[-1] + 1) // 2 :] = tensor.min()
    return shorter


def _traced_outputs(
    module: "ContractModule", example: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...] | None:
    """Return what a trace on an example computes from inputs; None if it cannot."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each value that Python reads
        try:
            traced = torch.jit.trace(
                module, tuple(each.clone() for each in example), check_trace=False, strict=False
            )
            return tuple(traced(*(each.clone() for each in inputs)))
        except Exception:  # noqa: BLE001 - a model may raise anything; then this proves nothing
            return None


def _differ(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> bool:
    return not all(
        one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )


def _values_decide(lines: tuple[str, ...]) -> Finding:
    others = f" (or at {', '.join(lines[1:])})" if len(lines) > 1 else ""
    return Finding(
        "E305",
        f"the model turns a tensor's values into Python's at {lines[0]}{others}: traced with other"
        " values of the same sizes, it returns different results for the same inputs",
        Place(source=lines[0]),
        {"lines": list(lines), "proven": True},
        Remedy(
            "Keep values in tensors, without int(), float(), bool(), .item(), .tolist() or numpy,"
            " and write both sides of a branch with torch.where or torch.cond. Not tried."
        ),
    )


def _refused_size(
    module: "ContractModule", examples: "Examples", probe: "Probe", root: str | None
) -> Finding | None:
    """Return C106 or C113 for an axis of which the model refuses another size than the probed."""
    for axis, other in _others(examples.contract, probe.sizes):
        sizes = {**probe.sizes, axis: other}
        inputs = examples.draw(sizes)
        try:
            with torch.no_grad():
                module(*(tensor.clone() for tensor in inputs))
        except Exception as error:  # noqa: BLE001 - a refusal is the answer
            return literal_size(module, inputs, sizes, root) or _refused(axis, sizes, error, root)
    return None


def _others(contract: Contract, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield another size of each axis, if possible one that no other axis has."""
    for axis in contract.axes:
        choices = [
            size
            for size in range(axis.min, min(axis.max, axis.min + _CHOICES) + 1)
            if size != sizes[axis.name]
        ]
        own = (size for size in choices if size not in sizes.values() and size > 1)
        if choices:
            yield axis.name, next(own, choices[0])


def _refused(
    axis: str, sizes: Mapping[str, int], error: Exception, root: str | None
) -> Finding | None:
    source = own_line(error, root)
    if not source:
        return None
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Finding(
        "C113",
        f"the original refuses {axis} {sizes[axis]} after it ran with another size, at {source}:"
        f" {text}",
        Place(tensor=axis, source=source),
        {"axis": axis, "refused": sizes[axis]},
        Remedy(
            f"Compute what that line needs from the shapes of each call, so that {axis!r} can vary,"
            " or declare the axis with one size."
        ),
    )
