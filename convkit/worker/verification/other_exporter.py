"""Whether torch's other exporter gets right what this one got wrong, by exporting and comparing."""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Exporter
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.graphs.runnable_graph import PieceFailedError, read_graph
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.exporters.export_proof import Proof, prove
from convkit.worker.exporters.exporter_registry import REGISTRY
from convkit.worker.graph.graph_contract import rename_to_contract
from convkit.worker.graph.graph_files import save_model
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.probing.torch_comparisons import find_decisions
from convkit.worker.original.probing.value_branches import value_dependent_lines

# Findings of nodes that are wrong in a graph.
_WRITTEN = ("N405", "N406", "N407")
_OTHER: dict[Exporter, Exporter] = {"torch": "torchscript", "torchscript": "torch"}


@dataclasses.dataclass(frozen=True)
class FailingCase:
    """One case's inputs and the original's outputs, and how far the export is off."""

    name: str
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    error: float


def with_other_exporter(
    findings: list[Finding], exporter: Exporter, job: ExportJob, case: FailingCase
) -> list[Finding]:
    """Return the findings of a search, the first with the other exporter as its remedy if that is
    right in the failing case and at the sizes that exports are proven at.
    """
    findings = [_by_exporter(each) for each in findings]
    other = _OTHER.get(exporter)
    if other is None or not findings:
        return findings
    proof = _proof(other, job, case)
    first, *rest = findings
    if proof is None:
        return [_without_help(first, other), *rest]
    message = (
        f"{first.message}. The exporter {other} gets it right: it matches the original in case"
        f" {case.name!r} and at {len(proof.sizes)} sizes (largest relative error"
        f" {proof.error:.1e})"
    )
    remedy = Remedy(f"Export with exporter: {other}.", {"export.exporter": other}, proven=True)
    evidence = {**first.evidence, "other_exporter": encode(proof)}
    return [dataclasses.replace(first, message=message, remedy=remedy, evidence=evidence), *rest]


def _by_exporter(finding: Finding) -> Finding:
    """Say that the exporter wrote a node that is wrong, in a graph that nobody else wrote."""
    if finding.code not in _WRITTEN or finding.evidence.get("owner") is not None:
        return finding
    operation = finding.evidence.get("operation")
    what = f"{operation} at {finding.place.source}" if operation and finding.place.source else None
    if what is None:
        return finding
    return dataclasses.replace(
        finding,
        message=f"{finding.message}. The exporter of torch {torch.__version__} wrote it",
        evidence={**finding.evidence, "owner": "exporter"},
        remedy=Remedy(
            f"Write {what} with other operations, which convkit has not tried, or use a release of"
            " torch whose exporter is mended."
        ),
    )


def _without_help(finding: Finding, other: Exporter) -> Finding:
    """Add to what the exporter wrote wrong that the other one does not help."""
    if finding.evidence.get("owner") != "exporter" or finding.remedy is None:
        return finding
    text = f"{finding.remedy.text} The exporter {other} is no help on this model."
    return dataclasses.replace(finding, remedy=Remedy(text))


def _proof(other: Exporter, job: ExportJob, case: FailingCase) -> Proof | None:
    root = job.loaded.source_root
    # A trace keeps one side of a branch on values: no comparison would prove the other.
    if value_dependent_lines(job.module, job.probe.inputs, root):
        return None
    with tempfile.TemporaryDirectory(dir=job.scratch) as scratch:
        try:
            model = REGISTRY[other].export(dataclasses.replace(job, scratch=Path(scratch)))
        except StageFailedError:
            return None
        rename_to_contract(model, job.contract)
        path = Path(scratch) / "other.onnx"
        save_model(model, path)
        if not explains(case.error, _error(path, case)):
            return None
        decisions, _ = find_decisions(
            job.module, job.examples.draw, job.contract, job.probe.sizes, root
        )
        proof = prove(job, path, decisions)
    return proof if isinstance(proof, Proof) else None


def _error(path: Path, case: FailingCase) -> float:
    graph = read_graph(path)
    given = {name: case.inputs[name] for name in graph.inputs if name in case.inputs}
    try:
        found = graph.run(list(case.outputs), given)
    except PieceFailedError:
        return float("inf")
    return largest_error(case.outputs, found)


def opset_of(graph: Path) -> int:
    """Return the version of ONNX's own operators that a graph imports."""
    model = onnx.load(graph, load_external_data=False)
    return next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
