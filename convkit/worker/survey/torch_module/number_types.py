"""Element types in which a module of the user's own can be converted: weights in bfloat16 or
float64 are loaded in float32, and lines that go on in float64 are named.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from convkit.protocol.contract import Contract, DType
from convkit.protocol.messages import Source
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import LoadedModel, load_model
from convkit.worker.original.operation_places import PlacedOperations
from convkit.worker.original.torch_dtypes import to_tensors

# Why float32 takes the place of a type of weights.
_REASONS = {
    torch.bfloat16: (
        "onnxruntime has no kernels for bfloat16 on CPUs, so `dtype: float32` widens the weights,"
        " which changes none of them"
    ),
    torch.float64: (
        "some runtimes, such as Core ML, have no float64, so `dtype: float32` rounds the weights,"
        " in the original as in what is converted"
    ),
    torch.float16: (
        "torch does not run it in float16 on CPUs, so `dtype: float32` widens the weights, which"
        " changes none of them"
    ),
}
_UNUSUAL = (torch.bfloat16, torch.float64)
_LOW: dict[torch.dtype, DType] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True)
class TypedModel:
    """A model, with its weights in a type that can be converted: `weights`, or their own. `note`
    says why, and is empty if nothing is to be said.
    """

    loaded: LoadedModel
    weights: DType | None = None
    note: str = ""


def type_choices(source: Source, loaded: LoadedModel) -> Iterator[TypedModel]:
    """Yield a model in the types to try, likeliest first. Weights of a factory's model in bfloat16
    or float64 are loaded in float32, and those in float16 if the model does not run as it is.
    """
    found = _weights_by_type(loaded.module) if source.kind == "factory" else {}
    unusual = {dtype: names for dtype, names in found.items() if dtype in _UNUSUAL}
    if not unusual:
        yield TypedModel(loaded)
        if torch.float16 in found:
            yield _in_float32(source, {torch.float16: found[torch.float16]})
        return
    yield _in_float32(source, unusual)
    names = [_name(dtype) for dtype in unusual]
    yield TypedModel(
        loaded,
        note=f"the module runs with its weights in {' and '.join(names)} only, for which many"
        " targets have no kernels: where forward converts to that type, convert to the type of a"
        " weight instead, such as x.to(self.proj.weight.dtype), and draft again",
    )


def low_weights(module: torch.nn.Module) -> tuple[DType, ...]:
    """Return the types of low precision that a module's weights have: it computes in them."""
    return tuple(sorted(_LOW[dtype] for dtype in _weights_by_type(module) if dtype in _LOW))


def _in_float32(source: Source, found: Mapping[torch.dtype, Sequence[str]]) -> TypedModel:
    reasons = [
        f"The module has {_listed(names)} in {_name(dtype)}, but {_REASONS[dtype]}"
        for dtype, names in found.items()
    ]
    loaded = load_model(dataclasses.replace(source, dtype="float32"))
    return TypedModel(loaded, "float32", ". ".join(reasons))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _weights_by_type(module: torch.nn.Module) -> dict[torch.dtype, list[str]]:
    found: dict[torch.dtype, list[str]] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            found.setdefault(tensor.dtype, []).append(name)
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def in_float32(example: object) -> object:
    """Return an example whose tensors are in float32 instead of another floating-point type."""

    def widened(value: object) -> object:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.float() if is_float and isinstance(value, torch.Tensor) else value

    return tree_map(widened, example)


def float64_note(loaded: LoadedModel, contract: Contract, feeds: Mapping[str, np.ndarray]) -> str:
    """Return where a call goes on in float64 though no input is in it; empty if it does nowhere."""
    if any(spec.dtype == "float64" for spec in contract.inputs):
        return ""
    module = ContractModule(loaded, contract)
    tensors = [*to_tensors(contract.inputs, feeds).values()]
    places = _Float64Places(module, loaded.source_root)
    with torch.no_grad(), contextlib.suppress(Exception), places:
        module(*tensors)
    if not places.found:
        return ""
    where = ", ".join([*places.found][:_MOST_NAMED])
    return (
        f"the module goes on in float64 at {where}. Some runtimes, such as Core ML, have none. If"
        " float32 is meant, make the values there float32: numpy's arrays are float64 unless they"
        " are told otherwise (np.float32(...), or dtype=torch.float32)"
    )


class _Float64Places(PlacedOperations):
    """Finds the lines that make float64 of another floating-point type."""

    def __init__(self, module: ContractModule, root: str | None) -> None:
        super().__init__(module, root)
        self.found: dict[str, None] = {}

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            given = [each for each in args if isinstance(each, torch.Tensor)]
            if any(each.is_floating_point() and each.dtype != torch.float64 for each in given):
                source, module = self.place()
                self.found[source or module or str(function)] = None
        return result
