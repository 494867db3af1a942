"""Explains why a model refuses the declared inputs, proven by inputs that it accepts."""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Sample
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule, OutputsError
from convkit.worker.original.source_lines import innermost_line, raising_positions

# Draws the inputs of a contract.
Draw = Callable[[Contract], Sequence[torch.Tensor]]


def refusal_finding(
    module: ContractModule,
    inputs: Sequence[torch.Tensor],
    refusal: BaseException,
    draw: Draw,
    samples: Mapping[str, Sample],
    root: str | None,
) -> Finding:
    """Return E410: where the model's code gives up, and what is wrong if a change makes it run:
    smaller numbers, as a table's rows ask for, or another declared size, as a layer asks for.

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
    if (rows := _rows_exceeded(module, inputs)) is not None:
        index, most = rows
        spec = contract.inputs[index]
        low = _low(samples.get(spec.name), most)
        return _beyond_table(message, spec, index, int(inputs[index].max()), (low, most), source)
    if (size := _accepted_size(module, draw)) is not None:
        return _other_size(message, contract, *size, source)
    return Finding(
        "E410",
        message,
        Place(source=source or None),
        remedy=Remedy(
            "Declare the shapes, and sample the values, that the model's forward accepts."
        ),
    )


def _accepted_size(module: ContractModule, draw: Draw) -> tuple[int, tuple[Dimension, ...]] | None:
    """Return the index of an input and the shape with which the model runs: one size differs."""
    contract = module.contract
    for index, place, size in _other_sizes(module.model, contract):
        spec = contract.inputs[index]
        shape = (*spec.shape[:place], size, *spec.shape[place + 1 :])
        other = dataclasses.replace(spec, shape=shape)
        others = (*contract.inputs[:index], other, *contract.inputs[index + 1 :])
        if _accepts(module, draw, dataclasses.replace(contract, inputs=others)):
            return index, shape
    return None


def _other_size(
    message: str, contract: Contract, index: int, shape: tuple[Dimension, ...], source: str
) -> Finding:
    """Return E410 for a declared size that is wrong; `shape` is the right one."""
    spec = contract.inputs[index]
    [(declared, size)] = (pair for pair in zip(spec.shape, shape, strict=True) if len({*pair}) > 1)
    return Finding(
        "E410",
        f"{message} It accepts {spec.name!r} with {size} instead of {declared}.",
        Place(tensor=spec.name, source=source or None),
        {"declared": list(spec.shape), "accepted": list(shape)},
        Remedy(
            f"Declare shape {_shape(shape)} for input {spec.name!r}.",
            {f"inputs.{index}.shape": list(shape)},
            proven=True,
        ),
    )


def _rows_exceeded(
    module: ContractModule, inputs: Sequence[torch.Tensor]
) -> tuple[int, int] | None:
    """Return the index of an input whose numbers exceed the rows of a table, and those rows: the
    model runs once the larger numbers are replaced by the last row's.
    """
    tables = (each for each in module.model.modules() if isinstance(each, torch.nn.Embedding))
    # The largest first: a smaller limit would be met by every larger table, too.
    limits = sorted({each.num_embeddings for each in tables}, reverse=True)
    for index, tensor in enumerate(inputs):
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            continue
        for rows in limits:
            if not tensor.numel() or int(tensor.max()) < rows:
                continue
            smaller = (*inputs[:index], tensor.clamp(max=rows - 1), *inputs[index + 1 :])
            if _runs(module, smaller):
                return index, rows
    return None


def _low(sample: Sample | None, rows: int) -> int:
    """Return the declared start of a range, if it is below the rows."""
    declared = int(sample.numbers[0]) if sample is not None and sample.kind == "integers" else 0
    return declared if declared < rows else 0


def _beyond_table(
    message: str, spec: TensorSpec, index: int, largest: int, within: tuple[int, int], source: str
) -> Finding:
    """Return E410 for sampled numbers that a table has no rows for; `within`: the range to sample
    from.
    """
    low, rows = within
    return Finding(
        "E410",
        f"{message} {spec.name!r} was sampled up to {largest}; the model accepts it below {rows},"
        " the rows of a table that it indexes.",
        Place(tensor=spec.name, source=source or None),
        {"largest": largest, "rows": rows},
        Remedy(
            f"Sample {spec.name!r} below {rows}, such as sample: {{integers: [{low}, {rows}]}}.",
            {f"inputs.{index}.sample": {"integers": [low, rows]}},
            proven=True,
        ),
    )


def _fails_with_any_inputs(refusal: BaseException) -> bool:
    """Return True if a name is missing from the code or from a module it uses."""
    if isinstance(refusal, AttributeError):
        return isinstance(refusal.obj, types.ModuleType)
    return isinstance(refusal, NameError | ImportError)


def _accepts(module: ContractModule, draw: Draw, contract: Contract) -> bool:
    """Return True if the model runs with a contract's inputs."""
    try:
        inputs = draw(contract)
    except Exception:  # noqa: BLE001 - not every contract has examples
        return False
    return _runs(module, inputs)


def _runs(module: ContractModule, inputs: Sequence[torch.Tensor]) -> bool:
    """Return True if the model runs with other inputs; its outputs are checked elsewhere."""
    try:
        with torch.no_grad():
            module(*inputs)
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
    return innermost_line(raising_positions(error.__traceback__), root) or ""


def _shape(shape: Sequence[Dimension]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
