"""Inputs that a model writes to: it changes the tensors of whoever calls it, and what is converted
from it does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.operation_places import PlacedOperations, written_tensors


def written_findings(
    module: ContractModule, calls: Iterable[Sequence[torch.Tensor]], root: str | None
) -> list[Finding]:
    """Return N514 for each input that a run changes, at the first operation that writes to it.

    The model runs on copies of the inputs of each call, until one changes: a mask may select
    nothing in the first. Nothing is returned of a model that writes to no input in the first, or
    that refuses it. `root` is the folder of the model's own source files.
    """
    names = [spec.name for spec in module.contract.inputs]
    for inputs in calls:
        own = [tensor.clone() for tensor in inputs]
        run = _Writes(module, root, own)
        try:
            with torch.no_grad(), run:
                module(*own)
        except Exception:  # noqa: BLE001 - the model is the user's code: it can raise anything
            return []
        changed = [
            _finding(names[place], *run.written[place])
            for place, (before, after) in enumerate(zip(inputs, own, strict=True))
            if place in run.written and not torch.equal(before, after)
        ]
        if changed or not run.written:
            return changed
    return []


def _finding(name: str, source: str | None, path: str) -> Finding:
    return Finding(
        "N514",
        f"the original writes to its input {name!r} ({module_at(path, source)}): it"
        " changes its caller's tensor, and no converted model does",
        Place(tensor=name, module=path or None, source=source),
        {"input": name, "owner": "module", "proven": True},
        Remedy(
            f"Copy the input before that line, {name} = {name}.clone(), or use torch.where, unless"
            " callers rely on the change: then return the changed tensor as an output."
        ),
    )


class _Writes(PlacedOperations):
    """Records where each of some tensors, or a view of it, is first written to."""

    def __init__(
        self, module: ContractModule, root: str | None, tensors: Sequence[torch.Tensor]
    ) -> None:
        super().__init__(module, root)
        self._places = {_memory(each): place for place, each in enumerate(tensors)}
        self.written: dict[int, tuple[str | None, str]] = {}

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        for value in written_tensors(function, args, kwargs):
            place = self._places.get(_memory(value))
            if place is not None and place not in self.written:
                self.written[place] = self.place()
        return function(*args, **kwargs)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
