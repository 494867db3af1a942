"""Searches for the cause of a difference between the original and the exported graph, on one
case.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.compared_cases import usual_sizes
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.explanations.frozen_values import kept_values
from convkit.worker.cause.explanations.python_branches import other_side, other_size_side
from convkit.worker.cause.graphs.float64_graph import run_in_float64
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, read_graph
from convkit.worker.cause.matching.relative_difference import largest_error
from convkit.worker.cause.wording.cause_findings import findings_of
from convkit.worker.exporters.custom_translations import load_translations
from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.graph.graph_files import MODEL_FILE
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.contract_probe import Examples, probe
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.fast_path import fast_path_finding
from convkit.worker.verification.float32_rounding import rounding_finding
from convkit.worker.verification.long_sums import long_sum_findings
from convkit.worker.verification.lost_digits import blamed_on_rounding
from convkit.worker.verification.other_exporter import FailingCase, opset_of, with_other_exporter
from convkit.worker.verification.other_weights import other_weights_finding
from convkit.worker.verification.overlapping_copies import overlapping_finding
from convkit.worker.verification.ties import undecided_finding


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Record the original's operations on a case and search the graph for differences, unless
    float32's rounding is all there is.

    Raises StageSkippedError if the original is not a torch module, because its operations cannot be
    recorded, or if the search's time ended before anything was found.
    """
    if request.source.kind == "onnx":
        raise StageSkippedError("the original is an ONNX file, whose operations are not recorded")
    if request.exported is None:
        raise StageSkippedError("there is no exported graph to search")
    context.progress("loading the original model", done=0.0)
    feeds = read_tensors(Path(request.reference), request.case, "inputs", request.contract.inputs)
    case = TorchCase.load(request, feeds)
    graph = read_graph(Path(request.exported) / MODEL_FILE)
    if request.unusual and (rounded := _rounded(request, case, graph, context)):
        return DiagnoseResult(None, None, 0), rounded
    specs = request.contract.outputs
    computed = _computed(graph, case, specs)
    if computed is not None:
        expected = read_tensors(Path(request.reference), request.case, "outputs", specs)
        other = other_weights_finding(request.source, case, request.case, expected)
        if other is not None:
            return DiagnoseResult(None, None, 1), [other]
        if sums := long_sum_findings(graph, feeds, expected, computed, request.case):
            return DiagnoseResult(None, None, len(sums)), sums
        context.progress(f"moving inputs by units in the last place: {request.case}", done=0.1)
        undecided = blamed_on_rounding(
            case,
            request.case,
            expected,
            computed,
            functools.partial(run_in_float64, graph, [spec.name for spec in specs]),
            undecided_finding(
                case,
                request.case,
                expected,
                computed,
                usual_sizes(Path(request.reference), request.contract),
            ),
        )
        if undecided is not None:
            return DiagnoseResult(None, None, 0), [undecided]
        for otherwise in (fast_path_finding, overlapping_finding):
            finding = otherwise(case, request.case, expected, computed)
            if finding is not None:
                return DiagnoseResult(None, None, 1), [finding]
    context.progress(f"recording the original: {request.case}", done=0.1)
    original = case.recorded()
    context.progress("looking for the first difference", done=0.3)
    diagnosis = localize(
        original.recording, graph, original.feeds, original.state, seconds=request.seconds
    )
    result = DiagnoseResult(
        _finite(diagnosis.error), _finite(diagnosis.remaining), len(diagnosis.causes)
    )
    found = findings_of(diagnosis, request.case)
    if computed is None:
        return result, found
    expected = {spec.name: original.recording.output(spec.name) for spec in specs}
    failing = FailingCase(request.case, original.feeds, expected, largest_error(expected, computed))
    found = _with_traced(request, context, case, found, computed, failing)
    if not found and diagnosis.seconds is not None:
        raise StageSkippedError(
            f"the search for the cause ended after {diagnosis.seconds:g} s of processor time, and"
            " had found nothing until then"
        )
    return result, found


def _computed(
    graph: Graph, case: TorchCase, outputs: Sequence[TensorSpec]
) -> dict[str, np.ndarray] | None:
    """Return the graph's outputs in a case; None if it does not run."""
    feeds = {name: to_array(tensor) for name, tensor in case.inputs.items()}
    try:
        return graph.run([spec.name for spec in outputs], feeds)
    except PieceFailedError:
        return None


def _with_traced(
    request: DiagnoseRequest,
    context: Context,
    case: TorchCase,
    found: list[Finding],
    computed: Mapping[str, np.ndarray],
    failing: FailingCase,
) -> list[Finding]:
    """Return the findings after what tracing explains: a branch not taken, or values kept from the
    example; otherwise, with the remedy of the other exporter if it does better.
    """
    compared = (tuple(computed), computed, request.case)
    root = case.loaded.source_root
    branch = other_side(
        case.module, case.inputs, *compared, root=root, exporter=request.exporter
    ) or other_size_side(case.module, case.inputs, computed, request.case, root=root)
    if branch is not None:
        return [branch, *found]
    if (examples := _examples(request, case.loaded)) is None:
        return found
    base = probe(case.module, examples)
    kept = kept_values(case.module, base.inputs, case.inputs, *compared, root=root)
    if kept is not None:
        return [kept, *found]
    if request.exporter is None:
        return found
    assert request.exported is not None  # it was searched
    context.progress("trying the other exporter", done=0.9)
    job = ExportJob(
        case.loaded,
        case.module,
        examples,
        base,
        opset_of(Path(request.exported) / MODEL_FILE),
        request.source.task,
        context.output,
        load_translations(),
    )
    return with_other_exporter(found, request.exporter, job, failing)


def _rounded(
    request: DiagnoseRequest, case: TorchCase, graph: Graph, context: Context
) -> list[Finding]:
    """Return N508 for each case that failed, if rounding explains them all; otherwise nothing."""
    found = []
    outputs = [spec.name for spec in request.contract.outputs]
    for name in request.unusual:
        context.progress(f"in float64: {name}", done=0.1)
        feeds = read_tensors(Path(request.reference), name, "inputs", request.contract.inputs)
        in_float64 = functools.partial(run_in_float64, graph, outputs)
        if (finding := rounding_finding(case.on(feeds), name, in_float64)) is None:
            return []
        found.append(finding)
    return found


def _examples(request: DiagnoseRequest, loaded: LoadedModel) -> Examples | None:
    """Return the inputs that the export was traced with; None for a file from elsewhere."""
    original = request.original
    if original is None:
        return None
    return Examples(request.contract, original.samples, loaded)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
