"""Branches of the original's Python on values and sizes: did an export keep the other side?

The proof is the original itself: if it computes what the graph computes once the branch is forced
to its other side, the graph holds that side.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.findings.shared_remedies import branch_in_the_graph
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.original.probing.torch_comparisons import run_inverted
from convkit.worker.original.probing.value_branches import BranchLines
from convkit.worker.original.torch_dtypes import to_arrays

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# Branches that are tried: each costs a run of the original.
_TRIED = 4
# What is left to who exports with torch's exporter already.
_REWRITE = Remedy("Write the branch with torch.where or torch.cond.")


def other_side(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...],
    found: Mapping[str, np.ndarray],
    case: str,
    *,
    root: str | None = None,
    exporter: str | None = None,
) -> Finding | None:
    """Return E208 for the branch whose other side an export computes, on one case.

    `found` are the export's outputs, `exporter` is what made it, if convkit did. `module` accepts
    the inputs and returns the outputs in order. Raises the module's exceptions in its unchanged
    run; one that fails on the other side proves nothing.
    """
    original, lines = _run(module, inputs, outputs, BranchLines(root))
    if not lines:
        return None
    before = largest_error(original, found)
    for line in list(lines)[:_TRIED]:
        try:
            inverted, _ = _run(module, inputs, outputs, BranchLines(root, line))
        except Exception:  # noqa: BLE001, S112 - a model may raise anything on a side it never takes
            continue
        after = largest_error(inverted, found)
        if explains(before, after):
            finding = _finding(line, lines[line], case, before, after)
            return finding if exporter != "torch" else dataclasses.replace(finding, remedy=_REWRITE)
    return None


def other_size_side(
    module: "ContractModule",
    inputs: Mapping[str, torch.Tensor],
    found: Mapping[str, np.ndarray],
    case: str,
    *,
    root: str | None = None,
) -> Finding | None:
    """Return E302 for the comparison of sizes whose other side an export computes, on one case.

    `found` are the export's outputs. Raises the module's exceptions in its unchanged run.
    """
    contract = module.contract
    outputs = tuple(spec.name for spec in contract.outputs)
    sizes: dict[str, int] = {}
    for spec in contract.inputs:
        sizes |= spec.sizes_from(inputs[spec.name].shape)
    computed, lines = run_inverted(module, inputs, sizes, root)
    before = largest_error(to_arrays(outputs, computed), found)
    for line in lines[:_TRIED]:
        try:
            inverted, _ = run_inverted(module, inputs, sizes, root, line)
            after = largest_error(to_arrays(outputs, inverted), found)
        except Exception:  # noqa: BLE001, S112 - a model may raise anything on a side it never takes
            continue
        if explains(before, after):
            return _size_finding(line, sizes, case, before, after)
    return None


def _size_finding(
    line: str, sizes: Mapping[str, int], case: str, before: float, after: float
) -> Finding:
    listed = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return Finding(
        "E302",
        f"the comparison of sizes at {line} turns out otherwise in case {case!r} ({listed}) than"
        " where the model was converted: with it inverted, the original computes what the converted"
        f" model computes (they differ by {before:.2g} as they are, and by {after:.2g} then)",
        Place(source=line, case=case),
        {
            "kind": "branch",
            "proven": True,
            "line": line,
            "before": before if np.isfinite(before) else str(before),
            "after": after,
        },
        branch_in_the_graph(line),
    )


def _run(
    module: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: tuple[str, ...],
    branches: BranchLines,
) -> tuple[dict[str, np.ndarray], dict[str, bool]]:
    with torch.no_grad(), branches:
        found = module(*(tensor.clone() for tensor in inputs.values()))
    return to_arrays(outputs, found), branches.lines


def _finding(line: str, outcome: bool, case: str, before: float, after: float) -> Finding:  # noqa: FBT001
    return Finding(
        "E208",
        f"the branch at {line} is {outcome} in case {case!r}, and the graph holds its other side:"
        f" with the branch inverted, the original computes what the graph computes (they differ by"
        f" {before:.2g} as they are, and by {after:.2g} then)",
        Place(source=line, case=case),
        {
            "kind": "branch",
            "proven": True,
            "line": line,
            "outcome": outcome,
            "before": before if np.isfinite(before) else str(before),
            "after": after,
        },
        Remedy("Write the branch with torch.where or torch.cond, or export with exporter: torch."),
    )
