"""What a refused conversion owes to axes that vary: it is tried again with them fixed."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreml.conversion.module_conversion import (
    Converted,
    ModuleConversion,
    convert,
)
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import StageFailedError

_REFUSED = "V103"


def convert_or_explain(conversion: ModuleConversion, sizes: Mapping[str, int]) -> Converted:
    """Convert a module. Raises like `convert`; what is raised for an operator that cannot be
    converted says whether it can be with axes fixed at the examples' `sizes`, in elements.
    """
    try:
        return convert(conversion)
    except UnexportableError as error:
        if all(finding.code != _REFUSED for finding in error.findings):
            raise
        explained = [_explained(finding, conversion, sizes) for finding in error.findings]
        raise UnexportableError(explained) from error


def _explained(finding: Finding, conversion: ModuleConversion, sizes: Mapping[str, int]) -> Finding:
    axes = [
        axis
        for axis in conversion.module.contract.axes
        if isinstance(axis, Axis) and axis.min < axis.max and axis.name in sizes
    ]
    if finding.code != _REFUSED or not axes:
        return finding
    tries = [[axis.name] for axis in axes]
    for names in [*tries, [axis.name for axis in axes]] if len(axes) > 1 else tries:
        if _converts(conversion, {name: sizes[name] for name in names}):
            return _open(finding, names, sizes)
    tried = " and ".join(axis.name for axis in axes)
    return dataclasses.replace(
        finding, message=f"{finding.message}; nor with {tried} fixed, which was tried"
    )


def _converts(conversion: ModuleConversion, sizes: Mapping[str, int]) -> bool:
    module = copy.copy(conversion.module)
    module.contract = with_fixed(module.contract, sizes)
    try:
        convert(dataclasses.replace(conversion, module=module))
    except StageFailedError:
        return False
    return True


def with_fixed(contract: Contract, sizes: Mapping[str, int]) -> Contract:
    """Return a contract in which axes have one size only."""
    return dataclasses.replace(
        contract,
        axes=tuple(
            Axis(axis.name, *(sizes[axis.name],) * 3) if axis.name in sizes else axis
            for axis in contract.axes
        ),
    )


def _open(finding: Finding, names: Sequence[str], sizes: Mapping[str, int]) -> Finding:
    """Return the finding with what helps: the axes, fixed."""
    fixed = ", ".join(f"{name} fixed at {sizes[name]}" for name in names)
    lines = "; ".join(
        f"axes.{name}: {{min: {sizes[name]}, typical: {sizes[name]}, max: {sizes[name]}}}"
        for name in names
    )
    return dataclasses.replace(
        finding,
        message=f"{finding.message}; with {fixed} it is converted",
        evidence={**finding.evidence, "fixed": {name: sizes[name] for name in names}},
        remedy=Remedy(
            f"Fix what stands in the way, at a size that your app uses ({fixed}: tried, it"
            f" converts): {lines}. A recipe of its own for this target leaves the others open."
        ),
    )
