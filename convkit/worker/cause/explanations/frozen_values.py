"""Values of tensors that the original's Python reads: did a trace keep those of its example?

The proof is the original itself: traced on the same example, it computes what the export computes.
"""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.original.probing.value_branches import value_dependent_lines
from convkit.worker.original.torch_dtypes import to_arrays

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule


def kept_values(
    module: "ContractModule",
    example: tuple[torch.Tensor, ...],
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...],
    found: Mapping[str, np.ndarray],
    case: str,
    *,
    root: str | None = None,
) -> Finding | None:
    """Return N510 if `found`, an export's outputs in a case, follow from values of the example that
    it was traced with.

    `root` is the folder of the model's own source files. Raises the module's exceptions.
    """
    lines = value_dependent_lines(module, example, root)
    if not lines:
        return None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each value that Python reads
        original = to_arrays(outputs, module(*_copies(inputs)))
        try:
            traced = torch.jit.trace(module, example, check_trace=False, strict=False)
            kept = to_arrays(outputs, traced(*_copies(inputs)))
        except Exception:  # noqa: BLE001 - a trace may fail at other sizes, in any way; it proves nothing
            return None
    before, after = largest_error(original, found), largest_error(kept, found)
    return _finding(lines, case, before, after) if explains(before, after) else None


def _copies(inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in inputs.values()]


def _finding(lines: tuple[str, ...], case: str, before: float, after: float) -> Finding:
    others = f" (or at {', '.join(lines[1:])})" if len(lines) > 1 else ""
    return Finding(
        "N510",
        f"the model turns a tensor's values into Python's at {lines[0]}{others}, and the export"
        " keeps those of the example that it was traced with: the original, traced on that"
        f" example, computes what the export computes in case {case!r} (they differ by"
        f" {before:.2g} as they are, and by {after:.2g} then)",
        Place(source=lines[0], case=case),
        {
            "kind": "frozen",
            "proven": True,
            "lines": list(lines),
            "before": before if np.isfinite(before) else str(before),
            "after": after,
        },
        Remedy(
            "Keep these values in tensors, without float(), int(), .item() or numpy. The exporter"
            " torch refuses such a model instead of fixing the value."
        ),
    )
