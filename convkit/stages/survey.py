"""Works out an ONNX file's contract for a drafted recipe."""

from pathlib import Path

from convkit.findings.model import Finding
from convkit.models.graph.contract import carried_contract, load_graph
from convkit.models.graph.loading import map_weights
from convkit.models.survey.survey import described, survey
from convkit.worker.context import Context, StageFailedError
from convkit.worker.protocol import SurveyRequest, SurveyResult


def run(request: SurveyRequest, context: Context) -> tuple[SurveyResult, list[Finding]]:
    """Survey a file; raises StageFailedError where it is no ONNX file."""
    path = Path(request.model)
    context.progress("reading the graph")
    model = load_graph(path)
    if not model.graph.outputs:
        raise StageFailedError(f"{path.name} is not an ONNX file: it has no graph")
    map_weights(model, path.parent)
    carried = carried_contract(path)
    if carried is not None:
        return described(model, carried), []
    return survey(model, path, request.seconds), []
