"""Tries the exporters in turn, and uses the first whose graph matches the original."""

import dataclasses
from collections.abc import Mapping
from types import ModuleType

import onnx_ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Exporter
from convkit.worker.cases.decision_sizes import Decisions
from convkit.worker.exporters import optimum_exporter, torch_exporter, torchscript_exporter
from convkit.worker.exporters.export_job import ExportJob, UnexportableError
from convkit.worker.exporters.export_proof import Proof, prove
from convkit.worker.graph.graph_contract import rename_to_contract
from convkit.worker.graph.graph_files import save_model
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.probing.torch_comparisons import find_decisions
from convkit.worker.original.probing.value_branches import value_dependent_lines

# In this order: torch.export tracks sizes through Python code, a trace does not, and optimum knows
# certain architectures only.
_CANDIDATES: dict[Exporter, ModuleType] = {
    "torch": torch_exporter,
    "torchscript": torchscript_exporter,
    "optimum": optimum_exporter,
}


@dataclasses.dataclass(frozen=True)
class ExporterChoice:
    """The exporter that was chosen, with its graph and its proof; `refused` says what was wrong
    with those before it.
    """

    exporter: Exporter
    model: onnx_ir.Model
    proof: Proof
    refused: Mapping[Exporter, str]

    def finding(self) -> Finding:
        """Return E303, which tells the choice."""
        compared = f"{len(self.proof.sizes)} sizes (relative error {self.proof.error:.1e})"
        before = "".join(f". Not {name}: {why}" for name, why in self.refused.items())
        return Finding(
            "E303",
            f"exported with {self.exporter}, whose graph matches the original at"
            f" {compared}{before}",
            evidence={
                "exporter": self.exporter,
                "refused": dict(self.refused),
                "compared": [dict(sizes) for sizes in self.proof.sizes],
                "error": self.proof.error,
            },
            remedy=Remedy(f"To skip the attempts, set export.exporter: {self.exporter}."),
        )


def export(job: ExportJob) -> onnx_ir.Model:
    """Export with the first exporter that works; see `choose`."""
    return choose(job).model


def choose(job: ExportJob) -> ExporterChoice:
    """Export with each exporter until a graph matches the original at the small cases' sizes.

    Raises UnexportableError with E304, which says why each of them fails.
    """
    root = job.loaded.source_root
    decisions, _ = find_decisions(
        job.module, job.examples.draw, job.contract, job.probe.sizes, root
    )
    refused: dict[Exporter, str] = {}
    causes: list[Finding] = []
    branches: tuple[str, ...] = ()
    for name in _CANDIDATES:
        if refused and not branches:  # torch.export has failed, and the others trace
            branches = value_dependent_lines(job.module, job.probe.inputs, root)
        if branches:
            refused[name] = f"would keep one side of the branch on values at {branches[0]}"
            continue
        try:
            model, proof = _attempt(job, name, decisions)
        except StageFailedError as error:
            refused[name] = first_line(str(error) or type(error).__name__)
            causes += error.findings if isinstance(error, UnexportableError) else []
            continue
        if isinstance(proof, Proof):
            return ExporterChoice(name, model, proof, refused)
        refused[name] = proof
    raise UnexportableError([_nothing_works(refused, causes)])


def _attempt(
    job: ExportJob, name: Exporter, decisions: Decisions
) -> tuple[onnx_ir.Model, Proof | str]:
    """Return an exporter's graph, and its proof or why there is none; raises StageFailedError."""
    folder = job.scratch / name
    folder.mkdir()
    model: onnx_ir.Model = _CANDIDATES[name].export(dataclasses.replace(job, scratch=folder))
    if (opset := model.opset_imports.get("")) != job.opset:
        return model, f"it exported opset {opset} instead of {job.opset}"
    rename_to_contract(model, job.contract)
    graph = folder / "proof.onnx"
    save_model(model, graph)
    return model, prove(job, graph, decisions)


def _nothing_works(refused: Mapping[Exporter, str], causes: list[Finding]) -> Finding:
    """Return E304, at the place that the first cause names."""
    remedy = next((cause.remedy for cause in causes if cause.remedy is not None), None)
    return Finding(
        "E304",
        "no exporter can convert this model: "
        + "; ".join(f"{name}: {why}" for name, why in refused.items()),
        causes[0].place if causes else Place(),
        {"refused": dict(refused)},
        Remedy(remedy.text) if remedy is not None else None,
    )


def first_line(error: str) -> str:
    """Return an error's first line, without what says that it is of the export."""
    return error.strip().splitlines()[0].removeprefix("export: ").rstrip(".")
