"""Names the tensors of what a module returns, as a recipe's outputs do."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from convkit.worker.original.contract_module import as_mapping, flattened
from convkit.worker.original.input_structure import is_cache


@dataclasses.dataclass(frozen=True)
class NamedOutput:
    """A tensor and the path at which a recipe finds it, if that is not its name."""

    tensor: torch.Tensor
    origin: str | None = None


def named_outputs(returned: object, *, nested: bool) -> dict[str, NamedOutput]:
    """Return the tensors that a recipe can declare as outputs, by name; none if it cannot.

    Caches are left out, as a recipe may, and structures inside of named outputs unless `nested`;
    a tuple of nothing but tensors is only of use if a recipe can declare all of it.
    """
    if isinstance(returned, torch.Tensor):
        return {"output": NamedOutput(returned)}
    named = as_mapping(returned)
    found: dict[str, NamedOutput] = {}
    if named is None:
        if (values := flattened(returned)) is not None:
            return {f"output_{place}": NamedOutput(value) for place, value in enumerate(values)}
        if not nested or not isinstance(returned, list | tuple):
            return {}
        for path, tensor in _leaves(dict(enumerate(returned))):
            found[_name(f"output_{path}", found)] = NamedOutput(tensor, path)
        return found
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            found[name] = NamedOutput(value)
        elif nested:
            for path, tensor in _leaves({name: value}):
                found[_name(path, {**named, **found})] = NamedOutput(tensor, path)
    return found


def _leaves(parts: Mapping[Any, object], above: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a structure by path, without what is no structure and no tensor."""
    for part, value in parts.items():
        path = f"{above}{part}"
        if isinstance(value, torch.Tensor):
            yield path, value
            continue
        inner = None if is_cache(type(value)) else as_mapping(value)
        if inner is None and isinstance(value, list | tuple):
            inner = {str(place): each for place, each in enumerate(value)}
        yield from _leaves(dict(inner or {}), f"{path}.")


def _name(path: str, taken: Mapping[str, object]) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", path)
    while name in taken:
        name += "_"
    return name
