"""Determines, if torch's exporter fails, whether TorchScript's works, by exporting and comparing.

torch.export unrolls recurrent layers that ONNX has no node for over the example's steps, and
rejects a model whose axis it had to fix; TorchScript's exporter translates them directly.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cases.decision_sizes import Decisions
from convkit.worker.exporters import torchscript_exporter
from convkit.worker.exporters.automatic_exporter import ExporterChoice, first_line
from convkit.worker.exporters.axis_lines import at_lines
from convkit.worker.exporters.dynamic_trace import unrolled_modules
from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.exporters.export_proof import Proof, prove
from convkit.worker.exporters.open_sizes.recurrent_layers import is_whole
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.probing.torch_comparisons import find_decisions


def prove_torchscript(
    job: ExportJob, decisions: Decisions, refused: str = ""
) -> ExporterChoice | None:
    """Export with TorchScript and compare with the original; None unless they agree at every
    compared size, including both sides of the model's decisions. `refused` says why torch's does
    not.
    """
    folder = job.scratch / "alternative"
    folder.mkdir()
    try:
        model = torchscript_exporter.export(dataclasses.replace(job, scratch=folder))
    except StageFailedError:
        return None
    proof = prove(job, folder / "first" / "model.onnx", decisions)
    if isinstance(proof, str):
        return None
    return ExporterChoice("torchscript", model, proof, {"torch": refused})


def with_alternative(
    job: ExportJob, findings: Sequence[Finding], error: str, *, takes_it: bool = False
) -> list[Finding] | ExporterChoice:
    """Return the findings after torch's exporter failed: E301 if TorchScript's was seen to work, or
    its graph if `takes_it`.

    Otherwise, the original findings, with the responsible recurrent layer or line.
    """
    root = job.loaded.source_root
    decisions, numbers = find_decisions(
        job.module, job.examples.draw, job.contract, job.probe.sizes, root
    )
    recurrent = unrolled_modules(job.loaded.module, is_whole)
    choice = prove_torchscript(job, decisions, first_line(error))
    if choice is not None:
        if takes_it:
            return choice
        return [_use_torchscript(findings, error, recurrent, choice.proof)]
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
