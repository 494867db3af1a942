"""Explains why a model refuses the declared inputs, proven by inputs that it accepts."""

import dataclasses
import traceback
import types
from collections.abc import Callable, Iterator, Sequence

import torch

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.source_lines import relative_source
from convkit.models.sources.contract_module import ContractModule, OutputsError
from convkit.tensors import Contract, Dimension
from convkit.worker.context import StageFailedError

# Draws the inputs of a contract.
Draw = Callable[[Contract], Sequence[torch.Tensor]]


def refusal_finding(
    module: ContractModule,
    inputs: Sequence[torch.Tensor],
    refusal: BaseException,
    draw: Draw,
    root: str | None,
) -> Finding:
    """Return E410: where the model's code gives up, and the declared size that is wrong, if another
    one that a layer asks for makes the model run.

    Raises StageFailedError if the code would fail with any inputs.
    """
    contract = module.contract
    pairs = zip(contract.inputs, inputs, strict=True)
    given = ", ".join(f"{spec} at {list(tensor.shape)}" for spec, tensor in pairs)
    source = own_line(refusal, root)
    where = f" at {source}" if source else ""
    if _fails_with_any_inputs(refusal):
        raise StageFailedError(
            f"the model's own code fails{where}: {_first_line(refusal)}"
        ) from refusal
    message = f"The model refuses the declared inputs ({given}){where}: {_first_line(refusal)}."
    for index, place, size in _other_sizes(module.model, contract):
        spec = contract.inputs[index]
        shape = (*spec.shape[:place], size, *spec.shape[place + 1 :])
        other = dataclasses.replace(spec, shape=shape)
        others = (*contract.inputs[:index], other, *contract.inputs[index + 1 :])
        if _accepts(module, draw, dataclasses.replace(contract, inputs=others)):
            return Finding(
                "E410",
                f"{message} It accepts {spec.name!r} with {size} instead of {spec.shape[place]}.",
                Place(tensor=spec.name, source=source or None),
                {"declared": list(spec.shape), "accepted": list(shape)},
                Remedy(
                    f"Declare shape {_shape(shape)} for input {spec.name!r}.",
                    {f"inputs.{index}.shape": list(shape)},
                ),
            )
    return Finding(
        "E410",
        message,
        Place(source=source or None),
        remedy=Remedy("Declare the shapes that the model's forward takes; that line shows which."),
    )


def _fails_with_any_inputs(refusal: BaseException) -> bool:
    """Return True if a name is missing from the code or from a module it uses."""
    if isinstance(refusal, AttributeError):
        return isinstance(refusal.obj, types.ModuleType)
    return isinstance(refusal, NameError | ImportError)


def _accepts(module: ContractModule, draw: Draw, contract: Contract) -> bool:
    """Return True if the model runs with other inputs; its outputs are checked elsewhere."""
    try:
        with torch.no_grad():
            module(*draw(contract))
    except OutputsError:
        return True
    except Exception:  # noqa: BLE001 - a refusal is an answer
        return False
    return True


def _other_sizes(module: torch.nn.Module, contract: Contract) -> Iterator[tuple[int, int, int]]:
    """Yield an input's index, an axis of it with a fixed size, and a size that a layer asks for."""
    widths = list(dict.fromkeys(_widths(module)))
    for index, spec in enumerate(contract.inputs):
        for place, size in enumerate(spec.shape):
            if isinstance(size, int):
                yield from ((index, place, width) for width in widths if width != size)


def _widths(module: torch.nn.Module) -> Iterator[int]:
    for layer in module.modules():
        for name in ("in_features", "in_channels", "input_size", "embed_dim", "num_features"):
            if isinstance(width := getattr(layer, name, None), int):
                yield width
        normalized = getattr(layer, "normalized_shape", ())
        if isinstance(normalized, tuple) and normalized:
            yield int(normalized[-1])


def own_line(error: BaseException, root: str | None) -> str:
    """Return `file:line` of the innermost line of the model's own code; empty if there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.lineno is None:
            continue
        if (source := relative_source(frame.filename, frame.lineno, root)) is not None:
            return source
    return ""


def _shape(shape: Sequence[Dimension]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
