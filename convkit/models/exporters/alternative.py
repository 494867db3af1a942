"""Determines, if torch's exporter fails, whether TorchScript's works, by exporting and comparing.

torch.export unrolls recurrent layers over the example's steps and rejects a model whose axis it had
to fix; TorchScript's exporter translates them directly.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from convkit.cases.decisions import Decisions, Turn, turns
from convkit.findings.model import Finding, Place, Remedy
from convkit.models.exporters import torchscript
from convkit.models.exporters.dynamic_trace import recurrent_modules
from convkit.models.exporters.job import Job
from convkit.models.exporters.proof import Proof, prove
from convkit.models.sources.decisions import find_decisions
from convkit.tensors import Contract
from convkit.worker.context import StageFailedError

if TYPE_CHECKING:
    from convkit.models.sources.contract_module import ContractModule
    from convkit.models.sources.probe import Examples, Probe


def prove_torchscript(job: Job, decisions: Decisions) -> Proof | None:
    """Export with TorchScript and compare with the original; None unless they agree at every
    compared size, including both sides of the model's decisions.
    """
    folder = job.scratch / "alternative"
    folder.mkdir()
    try:
        torchscript.export(dataclasses.replace(job, scratch=folder))
    except StageFailedError:
        return None
    proof = prove(job, folder / "first" / "model.onnx", decisions)
    return None if isinstance(proof, str) else proof


def with_alternative(job: Job, findings: Sequence[Finding], error: str) -> list[Finding]:
    """Return the findings after torch's exporter failed: E301 if TorchScript's was seen to work.

    Otherwise, the original findings, with the responsible recurrent layer or line.
    """
    root = job.loaded.source_root
    decisions, numbers = find_decisions(
        job.module, job.examples.draw, job.contract, job.probe.sizes, root
    )
    recurrent = recurrent_modules(job.loaded.module)
    proof = prove_torchscript(job, decisions)
    if proof is not None:
        return [_use_torchscript(findings, error, recurrent, proof)]
    return _at_lines(findings, job.contract, job.probe, decisions, numbers)


def with_lines(
    findings: Sequence[Finding],
    module: "ContractModule",
    examples: "Examples",
    probe: "Probe",
    root: str | None,
) -> list[Finding]:
    """Return torch.export's findings on axes with the responsible lines of the model's code."""
    if not any(finding.code in ("C106", "C113") for finding in findings):
        return list(findings)
    contract = examples.contract
    decisions, numbers = find_decisions(module, examples.draw, contract, probe.sizes, root)
    return _at_lines(findings, contract, probe, decisions, numbers)


def _at_lines(
    findings: Sequence[Finding],
    contract: Contract,
    probe: "Probe",
    decisions: Decisions,
    numbers: Sequence[str],
) -> list[Finding]:
    deciding = [
        turn for decision in decisions.sizes for turn in turns(decision, contract, probe.sizes)
    ]
    return [
        _fixed(finding, numbers) if finding.code == "C106" else _restricted(finding, deciding)
        for finding in findings
    ]


def _use_torchscript(
    findings: Sequence[Finding], error: str, recurrent: Mapping[str, str], proof: Proof
) -> Finding:
    layers = [f"nn.{kind} {name!r}" if name else f"nn.{kind}" for name, kind in recurrent.items()]
    axes = [str(finding.evidence["axis"]) for finding in findings if "axis" in finding.evidence]
    if layers and axes:
        what = f"keep axis {axes[0]!r} variable: it unrolls {', '.join(layers[:3])} step by step"
    else:
        what = f"export this model ({error.splitlines()[0]})"
    return Finding(
        "E301",
        f"torch's exporter cannot {what}. TorchScript's exporter can: its graph matches the"
        f" original at {len(proof.sizes)} sizes (largest relative error {proof.error:.1e})",
        Place(tensor=axes[0] if axes else None, module=next(iter(recurrent), None)),
        {
            "compared": [dict(sizes) for sizes in proof.sizes],
            "error": proof.error,
            "recurrent": dict(recurrent),
        },
        Remedy("Export with exporter: torchscript.", {"export.exporter": "torchscript"}),
    )


def _fixed(finding: Finding, numbers: Sequence[str]) -> Finding:
    """Name the line that fixes an axis, where one turns a size into a plain number."""
    if not numbers:
        return finding
    axis, size = finding.evidence["axis"], finding.evidence["fixed"]
    return Finding(
        finding.code,
        f"The model's own code fixes axis {axis!r} at {size}, the example's size: a size becomes a"
        f" plain number at {numbers[0]}.",
        Place(tensor=finding.place.tensor, source=numbers[0]),
        {**finding.evidence, "lines": list(numbers)},
        Remedy(
            "Compute shapes in the model from tensor.shape[i], without int() or literal sizes, so"
            f" that {axis!r} can vary."
        ),
    )


def _restricted(finding: Finding, deciding: Sequence[Turn]) -> Finding:
    """Name the branch on a size that restricts an axis."""
    turn = next((turn for turn in deciding if finding.place.tensor in (None, turn.axis)), None)
    if finding.code != "C113" or turn is None:
        return finding
    sides = turn.below[turn.axis], turn.above[turn.axis]
    text = finding.remedy.text if finding.remedy is not None else ""
    change = finding.remedy.change if finding.remedy is not None else {}
    return dataclasses.replace(
        finding,
        message=f"{finding.message} The branch at {turn.place} changes between {turn.axis}"
        f" {sides[0]} and {sides[1]}.",
        place=dataclasses.replace(finding.place, source=turn.place),
        evidence={**finding.evidence, "branch": turn.place, "sides": list(sides)},
        remedy=Remedy(f"Write the branch at {turn.place} with torch.cond. Or: {text}", change),
    )
