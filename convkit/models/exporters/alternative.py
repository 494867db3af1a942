"""Determines, if torch's exporter fails, whether TorchScript's works, by exporting and comparing.

torch.export unrolls recurrent layers over the example's steps and rejects a model whose axis it had
to fix; TorchScript's exporter translates them directly.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.cases.decisions import Decisions
from convkit.findings.model import Finding, Place, Remedy
from convkit.models.exporters import torchscript
from convkit.models.exporters.axis_lines import at_lines
from convkit.models.exporters.dynamic_trace import recurrent_modules
from convkit.models.exporters.job import Job
from convkit.models.exporters.proof import Proof, prove
from convkit.models.sources.decisions import find_decisions
from convkit.worker.context import StageFailedError


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
    return at_lines(findings, job.contract, job.probe, decisions, numbers)


def _use_torchscript(
    findings: Sequence[Finding], error: str, recurrent: Mapping[str, str], proof: Proof
) -> Finding:
    layers = [f"nn.{kind} {name!r}" if name else f"nn.{kind}" for name, kind in recurrent.items()]
    axes = [str(finding.evidence["axis"]) for finding in findings if "axis" in finding.evidence]
    if layers and axes:
        what = f"keep axis {axes[0]!r} variable: it unrolls {', '.join(layers[:3])} step by step"
    else:
        what = f"export this model ({error.splitlines()[0].rstrip('.')})"
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
        Remedy(
            "Export with exporter: torchscript.", {"export.exporter": "torchscript"}, proven=True
        ),
    )
