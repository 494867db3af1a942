"""The diagnose job of given models: what in the file is not as in the original.

A format that can be read as a graph is searched as exported graphs are; of any other, inputs and
outputs are.
"""

import dataclasses
import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json, decode
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.runtimes.given.build import MODEL
from convkit.runtimes.given.formats import FORMATS
from convkit.runtimes.given.options import GivenOptions
from convkit.runtimes.given.session import open_given
from convkit.worker.building.built_files import find_model
from convkit.worker.cause.boundary.boundary_faults import exchanged, with_change_at_edge
from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.name_assignment import exchanged_inputs
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.other_formats.format_wording import in_own_words
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph
from convkit.worker.cause.search_types.search_results import Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.reference.recorded_original import RecordedOriginal, record_original
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    RunFailedError,
    RuntimeSession,
)

_IN_ITS_CODE = (
    "Correct the model's code, or the converter's options, from which the file was made: convkit"
    " does not edit it."
)
_FROM_WEIGHTS = (
    "Convert the file again from the weights that the original is loaded from: convkit does not"
    " edit it."
)
_REMEDIES = {
    "C115": (
        "Give the file this input as it expects it, or convert it again without the change:"
        " convkit does not edit it."
    ),
    "C209": (
        "Undo the change where the file is called, or convert it again without the change: convkit"
        " does not edit it."
    ),
    "N403": _FROM_WEIGHTS,
    "N404": _FROM_WEIGHTS,
}


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Search a given file for what differs from the original in one reference case.

    Raises StageSkippedError if the original cannot be recorded, or the file does not run.
    """
    assert request.built is not None
    options = decode(GivenOptions, request.options)
    path = find_model(Path(request.built), f"{MODEL}{options.format}")
    context.progress(f"recording the original: {request.case}", done=0.1)
    try:
        original = record_original(request)
        session = open_given(path, options, request.contract)
        feeds = session.served(original.feeds)
    except (PieceFailedError, ModelRefusedError, RunFailedError) as error:
        raise StageSkippedError(str(error)) from error
    context.progress("searching the file", done=0.3)
    original = _under_their_names(original, options)
    read = FORMATS[options.format].read
    wanted = original.recording.outputs
    translated = read(path, feeds, wanted) if read is not None and _can_search() else None
    if translated is None:
        translated = TranslatedGraph(_BlackBox.of(session.opened, feeds, original), {}, ())
        diagnosis = _at_boundary(original, translated.graph, feeds)
    else:
        feeds = {
            name: each.astype(np.float32) if each.dtype == np.float16 else each
            for name, each in feeds.items()
        }
        diagnosis = localize(
            original.recording, translated.graph, feeds, original.state, seconds=request.seconds
        )
    findings = [
        in_own_words(each, translated, Remedy(_REMEDIES.get(each.code, _IN_ITS_CODE)))
        for each in findings_of(diagnosis, request.case)
    ]
    if not FORMATS[options.format].ordered:  # other names alone would only change the order
        edge = GraphEdge(original.recording, translated.graph, feeds)
        findings = [_with_names(each, edge, options) for each in findings]
    result = DiagnoseResult(
        _finite(diagnosis.error), _finite(diagnosis.remaining), len(diagnosis.causes)
    )
    return result, findings


def _can_search() -> bool:
    return importlib.util.find_spec("onnx_ir") is not None


def _under_their_names(original: RecordedOriginal, options: GivenOptions) -> RecordedOriginal:
    """Return the recording with outputs by the file's names."""
    recording = original.recording
    outputs = {options.names.get(name, name): each for name, each in recording.outputs.items()}
    recording = dataclasses.replace(recording, outputs=outputs)
    return dataclasses.replace(original, recording=recording)


@dataclasses.dataclass(frozen=True)
class _BlackBox(Graph):
    """A model of which only inputs and outputs can be had, in the place of a graph."""

    session: RuntimeSession

    @classmethod
    def of(cls, session: RuntimeSession, feeds: Values, original: RecordedOriginal) -> "_BlackBox":
        outputs = tuple(original.recording.outputs)
        return cls((), tuple(feeds), outputs, {}, {}, 0, (), session)

    def run(self, targets: Sequence[str], feeds: Values) -> dict[str, np.ndarray]:
        """Run the model as a whole."""
        try:
            found = self.session.run(feeds)
        except RunFailedError as error:
            raise PieceFailedError(str(error)) from error
        return {name: found[name] for name in targets if name in found}


def _at_boundary(original: RecordedOriginal, graph: Graph, feeds: Values) -> Diagnosis:
    """Search inputs and outputs alone."""
    edge = GraphEdge(original.recording, graph, feeds)
    error = edge.error(feeds)
    if error <= CLOSE:
        return Diagnosis(error, error, ())
    found = exchanged(edge, error)
    causes = (found,) if found is not None else with_change_at_edge((), edge, error) or ()
    return Diagnosis(error, min((cause.after for cause in causes), default=error), causes)


def _with_names(finding: Finding, edge: GraphEdge, options: GivenOptions) -> Finding:
    """Return a finding about exchanged inputs or outputs with the names that put them right."""
    if finding.code == "C208":
        exchange = _exchanged_outputs(edge)
    elif finding.code == "C110":
        found = exchanged_inputs(edge.feeds, edge.error(edge.feeds), edge.error)
        exchange = {} if found is None else found[1]
    else:
        return finding
    ours = {theirs: name for name, theirs in options.names.items()}
    change: dict[str, Json] = {}
    change |= options.names
    change |= {ours.get(each, each): other for each, other in exchange.items()}
    remedy = Remedy(
        "Write these names under the target, or correct the file.", {"target.names": change}
    )
    return dataclasses.replace(finding, remedy=remedy) if exchange else finding


def _exchanged_outputs(edge: GraphEdge) -> dict[str, str]:
    """Return for each output the one that has its values; nothing if that is not an exchange."""
    found = edge.outputs(edge.feeds) or {}
    wanted = edge.recording.outputs
    right = {
        name: next(
            (
                other
                for other, values in found.items()
                if relative_error(values, edge.recording.output(name)) <= CLOSE
            ),
            "",
        )
        for name in wanted
    }
    moved = {name: other for name, other in right.items() if name != other}
    return moved if set(moved) == set(moved.values()) else {}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
