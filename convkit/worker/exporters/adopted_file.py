"""Adopts a third-party ONNX file: nothing is traced, no node is changed."""

from pathlib import Path

import onnx
import onnx_ir

from convkit.protocol.findings.finding import Finding
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.graph.external_data import external_data_findings
from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.graph.graph_loading import map_weights
from convkit.worker.graph.lint.check_registry import lint
from convkit.worker.graph.lint.onnx_checker import CONSTANT_WEIGHTS, checkable
from convkit.worker.job_context import StageFailedError


def adopt(path: Path) -> tuple[onnx_ir.Model, list[Finding]]:
    """Load a model, and return findings on its file.

    Raises StageFailedError if there is no file, UnexportableError if it is damaged or lacks
    weights.
    """
    if not path.is_file():
        raise StageFailedError(f"model.onnx: there is no file {path}")
    findings = lint(path)
    if errors := [finding for finding in findings if finding.is_error]:
        raise UnexportableError(errors)
    model = load_graph(path)
    if missing := external_data_findings(model, path.parent):
        raise UnexportableError(missing)
    map_weights(model, path.parent)
    model.ir_version = max(model.ir_version, CONSTANT_WEIGHTS)
    return model, findings


def check_structure(path: Path, key: str) -> None:
    """Raise StageFailedError unless ONNX's own checker considers the file well formed; external
    weights are not checked.

    (The checker rejects a file with several hard links, as in a store and a run's folder, as an
    attack.)
    """
    proto = checkable(onnx.load(path, load_external_data=False))
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise StageFailedError(f"{key}: {path.name} is not a valid ONNX model: {error}") from error
