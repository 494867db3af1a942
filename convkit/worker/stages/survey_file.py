"""Works out an ONNX file's contract for a drafted recipe."""

import contextlib
import dataclasses
from pathlib import Path

import onnx_ir as ir

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import SurveyRequest, SurveyResult
from convkit.worker.graph.graph_contract import carried_contract, graph_contract, load_graph
from convkit.worker.graph.graph_loading import map_weights
from convkit.worker.graph.rewriting.fixed_random_numbers import can_fix, fixed_copy
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.runtime_interface.registered_operators import known_libraries
from convkit.worker.survey.file_survey import described, survey
from convkit.worker.survey.inputs.score_labels import labels_of


def run(request: SurveyRequest, context: Context) -> tuple[SurveyResult, list[Finding]]:
    """Survey a file; raises StageFailedError if it is not an ONNX file, or has no contract."""
    path = Path(request.model)
    context.progress("reading the graph")
    model = load_graph(path)
    if not model.graph.outputs:
        raise StageFailedError(f"{path.name} is not an ONNX file: it has no graph")
    _refuse_without_contract(model, path)
    map_weights(model, path.parent)
    carried = carried_contract(path)
    draws = can_fix(model)
    if carried is not None:
        found = described(model, carried)
    else:
        with fixed_copy(path) if draws else contextlib.nullcontext(path) as runnable:
            found = survey(model, runnable, request.seconds, context.progress)
    functions = {function.domain for function in model.functions.values()}
    domains = {node.domain for node in model.graph.all_nodes()} - functions
    labels = labels_of(model) if carried is None else {}
    libraries = known_libraries(domains)
    return dataclasses.replace(found, libraries=libraries, labels=labels, draws=draws), []


def _refuse_without_contract(model: ir.Model, path: Path) -> None:
    """Raise StageFailedError if no contract can describe a graph's inputs."""
    names = [spec.name for spec in graph_contract(model).inputs]
    if not names:
        raise StageFailedError(
            f"{path.name} has no inputs: it returns constants, so there is nothing to verify"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StageFailedError(
            f"{path.name} is not a valid ONNX file: it has several inputs called {twice[0]!r};"
            " rename all but one"
        )
