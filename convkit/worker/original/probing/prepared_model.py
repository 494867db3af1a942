"""Prepares the original model for tracing: loads it, wraps it in its contract, and probes it."""

import dataclasses
from typing import TYPE_CHECKING

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Original
from convkit.worker.job_context import Context
from convkit.worker.original.forward_signature import signature_findings
from convkit.worker.original.loading import load_model

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.loading.loaded_model import LoadedModel
    from convkit.worker.original.probing.contract_probe import Examples, Probe


@dataclasses.dataclass(frozen=True)
class PreparedModel:
    """A model behind its contract, and inputs that it accepted."""

    loaded: "LoadedModel"
    module: "ContractModule"
    examples: "Examples"
    probe: "Probe"
    parameters: int


@dataclasses.dataclass(frozen=True)
class Unfit:
    """A model that does not match its contract; the accompanying findings explain why."""

    parameters: int


def prepare(
    original: Original, contract: Contract, context: Context
) -> tuple[PreparedModel | Unfit, list[Finding]]:
    """Load a model, check its signature, run it on example inputs, and report what the run
    shows.
    """
    source = original.source
    context.progress("loading the model", done=0.0)
    loaded = load_model(source)
    parameters = sum(parameter.numel() for parameter in loaded.module.parameters())
    findings = signature_findings(loaded, contract, original.input_order, source.omit)
    if any(
        finding.code in ("C101", "C102", "C104") for finding in findings
    ):  # it cannot even be called
        return Unfit(parameters), findings
    from convkit.worker.original.contract_module import ContractModule
    from convkit.worker.original.probing.contract_probe import Examples, probe

    context.progress("running the model on example inputs", done=0.2)
    module = ContractModule(loaded, contract, source.omit)
    examples = Examples(contract, original.samples, loaded)
    base = probe(module, examples)
    findings += base.findings
    prepared = PreparedModel(loaded, module, examples, base, parameters)
    if base.outputs is not None:
        findings += _effects(prepared)
    if any(finding.is_error for finding in findings):
        return Unfit(parameters), findings
    return prepared, findings


def _effects(prepared: PreparedModel) -> list[Finding]:
    """Return what running the original shows: inputs it ignores, inputs it lacks, weights that were
    not loaded.
    """
    from convkit.worker.original.probing.hidden_influences import (
        tokenizer_findings,
        unloaded_findings,
    )
    from convkit.worker.original.probing.input_influence import ignored_inputs

    module, examples, base = prepared.module, prepared.examples, prepared.probe
    return [
        *ignored_inputs(module, examples, base),
        *tokenizer_findings(module, examples, base, module.omit),
        *unloaded_findings(module, base, prepared.loaded),
    ]
