"""Whether an input of the original has any influence on its outputs."""

import dataclasses
from collections.abc import Sequence

import torch

from convkit.protocol.findings.finding import Finding
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.forward_signature import forward_parameters, unknown_input
from convkit.worker.original.input_structure import parameter_of
from convkit.worker.original.probing.contract_probe import Examples, Probe, run


def influences(module: ContractModule, examples: Examples, base: Probe, index: int) -> bool:
    """Return True if different values for one input change any output of the original."""
    assert base.outputs is not None
    alternatives = [examples.draw(base.sizes, turn=turn)[index] for turn in (1, 2)]
    alternatives += shifted(base.inputs[index])
    for alternative in alternatives:
        changed = list(base.inputs)
        changed[index] = alternative
        if torch.equal(alternative, base.inputs[index]):
            continue
        try:
            outputs = run(module, changed)
        except Exception:  # noqa: BLE001, S112 - values that the model rejects are inconclusive
            continue
        if outputs_differ(outputs, base.outputs):
            return True
    return False


def shifted(values: torch.Tensor) -> list[torch.Tensor]:
    """Return different values of the same shape and element type, in the range of flags and
    indices.
    """
    if values.dtype is torch.bool:
        return [~values]
    if values.is_floating_point():
        return [values + 1, -values, torch.zeros_like(values)]
    return [(values - 1).abs(), torch.zeros_like(values), torch.ones_like(values)]


def outputs_differ(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Return True if any element differs; a NaN differs from a number and equals a NaN."""
    return any(
        (
            a.shape != b.shape or not torch.equal(a.nan_to_num(nan=1e30), b.nan_to_num(nan=1e30))
            if a.is_floating_point()
            else not torch.equal(a, b)
        )
        for a, b in zip(first, second, strict=True)
    )


def ignored_inputs(module: ContractModule, examples: Examples, base: Probe) -> list[Finding]:
    """Return C101 or C104 for inputs that forward accepts through **kwargs without any effect."""
    parameters = forward_parameters(examples.loaded)
    declared = {parameter_of(spec, parameters) for spec in examples.contract.inputs}
    free = [name for name in parameters if name not in declared]
    return [
        dataclasses.replace(
            finding, message=f"{finding.message} It ends up in **kwargs, which the model ignores."
        )
        for index, spec in enumerate(examples.contract.inputs)
        if parameter_of(spec, parameters) not in parameters
        and not influences(module, examples, base, index)
        for finding in [unknown_input(spec, free, parameters, examples.contract)]
    ]
