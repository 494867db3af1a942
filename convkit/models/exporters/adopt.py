"""Takes an ONNX file made elsewhere as it is: nothing is traced, no node is changed."""

from pathlib import Path

import onnx
import onnx_ir

from convkit.findings.model import Finding
from convkit.models.exporters.job import UnexportableError
from convkit.models.graph.contract import load_graph
from convkit.models.graph.external_data import external_data_findings
from convkit.models.graph.loading import map_weights
from convkit.models.lint.registry import lint
from convkit.models.lint.standard import without_external
from convkit.worker.context import StageFailedError


def adopt(path: Path) -> tuple[onnx_ir.Model, list[Finding]]:
    """Load a model, with what is doubtful about its file.

    Raises StageFailedError where there is no file, UnexportableError for one that is damaged or
    whose weights are not all there.
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
    return model, findings


def check_structure(path: Path, key: str) -> None:
    """Raise StageFailedError unless ONNX's own checker finds the file well formed; external weights
    are not looked at.

    (The checker takes a file with several hard links, as a store and a run's folder have, for an
    attack.)
    """
    proto = without_external(onnx.load(path, load_external_data=False))
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise StageFailedError(f"{key}: {path.name} is not a valid ONNX model: {error}") from error
