"""Whether the original reads from memory while it writes to it: `x[1:] = x[:-1]`.

torch leaves open in which order such elements are copied; its kernels go by vectors and threads,
and some read what they have written. A graph reads everything first. The proof is the original
again with what it reads copied before: it then returns what the graph does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.cases.equal_scores import differing
from convkit.worker.original.operation_places import PlacedOperations, written_tensors
from convkit.worker.original.torch_dtypes import to_arrays
from convkit.worker.reference.recorded_original import TorchCase

Outputs = Mapping[str, np.ndarray]


def overlapping_finding(
    case: TorchCase, name: str, expected: Outputs, computed: Outputs
) -> Finding | None:
    """Return N517 if the original that copies what it reads first returns what the graph does, and
    not what the original does; None otherwise. `expected` and `computed` are the outputs of the
    original and of the graph in the case.
    """
    names = tuple(spec.name for spec in case.module.contract.outputs)
    copied = _CopiedFirst(case)
    with torch.no_grad(), copied:
        found = case.module(*(each.clone() for each in case.inputs.values()))
    if copied.first is None:
        return None
    defined = to_arrays(names, found)
    if any(differing(defined[each], computed[each]).any() for each in names):
        return None
    parted = [each for each in names if differing(defined[each], expected[each]).any()]
    if not parted:
        return None
    source, path = copied.first
    return Finding(
        "N517",
        "the original writes to memory that it reads in the same operation"
        f" ({module_at(path, source)}), in an order that torch leaves open: {parted[0]!r} in case"
        f" {name!r} is not what the line says. With what it reads copied first, the original agrees"
        " with the graph",
        Place(tensor=parted[0], module=path or None, case=name, source=source),
        {"kind": "overlapping copy", "proven": True, "owner": "module"},
        Remedy(
            "Copy what that line reads, with .clone() at its end, or use torch.roll or torch.cat."
            " The graph is right, and needs no change."
        ),
    )


class _CopiedFirst(PlacedOperations):
    """Copies what an operation reads of memory that it writes to; `first` is the first place."""

    def __init__(self, case: TorchCase) -> None:
        super().__init__(case.module, case.loaded.source_root)
        self.first: tuple[str | None, str] | None = None

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        written = [*written_tensors(function, args, kwargs)]
        given = [
            value.clone() if any(_overlap_in_part(value, each) for each in written) else value
            for value in args
        ]
        if self.first is None and any(a is not b for a, b in zip(args, given, strict=True)):
            self.first = self.place()
        return function(*given, **kwargs)


def _overlap_in_part(read: object, written: torch.Tensor) -> bool:
    """Return True if a tensor lies in the memory of another one, but not element by element."""
    if not isinstance(read, torch.Tensor) or not read.numel() or not written.numel():
        return False
    if read.untyped_storage().data_ptr() != written.untyped_storage().data_ptr():
        return False
    same = (read.data_ptr(), read.shape, read.stride())
    if same == (written.data_ptr(), written.shape, written.stride()):
        return False
    size = read.untyped_storage().nbytes() // read.element_size()
    places = torch.zeros(size, dtype=torch.bool)
    places.as_strided(written.shape, written.stride(), written.storage_offset()).fill_(1)
    found = places.as_strided(read.shape, read.stride(), read.storage_offset())
    return read.dtype == written.dtype and bool(found.any())
