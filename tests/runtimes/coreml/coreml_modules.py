"""Torch modules behind a contract, converted and evaluated as the stages do it."""

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.module_conversion import (
    Converted,
    ModuleConversion,
    convert_traced,
    trace_module,
)
from convkit.runtimes.coreml.conversion.traced_program import TracedProgram
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import Program, load_program
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.torch_dtypes import contract_dtype

BATCH = Axis("batch", 1, 2, 4)
SEQUENCE = Axis("sequence", 2, 7, 20)

_TRACED: weakref.WeakKeyDictionary[ContractModule, TracedProgram] = weakref.WeakKeyDictionary()


def behind_contract(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    axes: Sequence[Axis] = (BATCH,),
) -> ContractModule:
    """Put a module behind a contract whose first dimensions are the axes, for inputs and outputs
    alike.
    """
    names = tuple(axis.name for axis in axes)
    with torch.no_grad():
        given = module(**inputs)
    found = dict(zip(outputs, given if isinstance(given, tuple) else (given,), strict=True))

    def spec(name: str, tensor: torch.Tensor) -> TensorSpec:
        dtype = contract_dtype(tensor.dtype)
        assert dtype is not None
        return TensorSpec(name, dtype, (*names, *tensor.shape[len(names) :]))

    contract = Contract(
        tuple(spec(name, tensor) for name, tensor in inputs.items()),
        tuple(spec(name, tensor) for name, tensor in found.items()),
        tuple(axes),
    )
    return ContractModule(LoadedModel(module, "a test's"), contract)


def converted(
    module: ContractModule,
    inputs: Mapping[str, torch.Tensor],
    precision: LowPrecision | None = None,
    **options: str,
) -> Converted:
    """Convert a module; tracing it again for another precision would make the same trace."""
    conversion = ModuleConversion(module, tuple(inputs.values()), precision=precision, **options)  # type: ignore[arg-type]
    if module not in _TRACED:
        _TRACED[module] = trace_module(conversion)
    return convert_traced(conversion, _TRACED[module])


def saved(conversion: Converted, folder: Path) -> Program:
    path = folder / "model.mlpackage"
    conversion.model.save(str(path))
    return load_program(path)


def feeds(inputs: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return inputs as a package takes them."""
    return {
        name: tensor.numpy() if tensor.is_floating_point() else tensor.to(torch.int32).numpy()
        for name, tensor in inputs.items()
    }


def evaluated(program: Program, inputs: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return Evaluator(program).run(feeds(inputs)).outputs
