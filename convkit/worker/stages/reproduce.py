"""Writes the smallest script that shows a located fault without convkit: the job behind
`convkit diagnose --reproducer`.
"""

import contextlib
import dataclasses
import importlib
import importlib.metadata
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import numpy as np

from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import ReproduceRequest, ReproduceResult
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    Values,
    label,
    module_of,
    read_graph,
    source_of,
)
from convkit.worker.cause.place.expected_values import expected_values
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.job_context import Context
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.reproducers.graph_piece import is_right, refused_piece, wrong_piece
from convkit.worker.reproducers.module_piece import wrong_module
from convkit.worker.reproducers.script_text import SCRIPT, Arrays, outcome, pinned, script

_NOTHING = "no part of the model that is smaller than the whole shows it by itself"
# A user's file that is copied whole has no more lines than a maintainer reads.
_MOST_MODULE_LINES = 150
# Nodes that are run one by one where a graph does not run as a whole.
_ONE_BY_ONE = 300


def run(request: ReproduceRequest, context: Context) -> tuple[ReproduceResult, list[Finding]]:
    """Return the smallest script that was run here and showed the fault."""
    runtime = importlib.import_module(request.reproducer)
    request = dataclasses.replace(request, versions=_known_versions(request, runtime))
    if request.failed is not None:
        return _conversion(request, runtime, context.output), []
    if runtime.RUN is None:
        return ReproduceResult(None, "its built models only run on another system"), []
    if request.exported is None or request.reference is None or request.case is None:
        return ReproduceResult(None, "there is no graph, or no case that fails"), []
    contract = request.contract
    feeds = dict(read_tensors(Path(request.reference), request.case, "inputs", contract.inputs))
    graph = read_graph(find_model(Path(request.exported), EXPORTED_FILE))
    recording, values = _expected(request, graph, feeds, context)
    context.progress("looking for the smallest part that shows the fault", done=0.5)
    return _smallest(request, runtime, graph, recording, values, context.output), []


def _known_versions(request: ReproduceRequest, runtime: ModuleType) -> dict[str, str]:
    """Return the packages' releases: those of the target's stages, for a stage that broke those of
    this environment, which the same recipe chose.
    """
    found = dict(request.versions)
    for name in ("torch", "onnxscript", "numpy", *runtime.PACKAGES):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.setdefault(name, importlib.metadata.version(name).partition("+")[0])
    return found


def _expected(
    request: ReproduceRequest, graph: Graph, feeds: Values, context: Context
) -> tuple[Recording | None, Mapping[str, np.ndarray]]:
    """Return the original's call (None for a file) and what every value of the graph should be."""
    if request.source.kind == "onnx" or request.refused:
        names = [name for node in graph.nodes for name in node.output if name]
        try:
            return None, {**feeds, **graph.run(names, feeds)}
        except PieceFailedError:
            return None, node_by_node(graph, feeds)
    context.progress("recording the original", done=0.1)
    assert request.reference is not None
    case = TorchCase.load(request, feeds)
    original = case.recorded()
    context.progress("comparing the exported graph with the original", done=0.3)
    found = expected_values(original.recording, graph, original.feeds)
    return original.recording, {**found.found, **original.feeds, **found.values}


def node_by_node(graph: Graph, feeds: Values) -> dict[str, np.ndarray]:
    """Return what the first nodes compute one by one, without those that no session loads."""
    known = dict(feeds)
    for node in graph.nodes[:_ONE_BY_ONE]:
        with contextlib.suppress(PieceFailedError):
            known |= graph.run([name for name in node.output if name], known)
    return known


def _smallest(
    request: ReproduceRequest,
    runtime: ModuleType,
    graph: Graph,
    recording: Recording | None,
    values: Mapping[str, np.ndarray],
    folder: Path,
) -> ReproduceResult:
    shared = (runtime, request.versions, folder)
    refused = refused_piece(graph, values, *shared)
    if refused is not None:
        operators = tuple(node.op_type for node in refused)
        end = refused[-1]
        place = Place(node=label(end), module=module_of(end) or None, source=source_of(end))
        return ReproduceResult("refused", "", operators, _pins(request, runtime), place=place)
    if request.refused:
        return ReproduceResult(None, "it loads in a session of its own")
    ends = _ends(request, graph)
    piece = wrong_piece(graph, values, ends, *shared)
    if piece is not None and is_right(piece, folder, values) is not False:
        operators = tuple(node.op_type for node in piece)
        return ReproduceResult("graph", "", operators, _pins(request, runtime))
    if recording is None:
        return ReproduceResult(None, _NOTHING)
    near = next((values[name] for name in ends if name in values), None)
    opset = dict(graph.opsets).get("", 18)
    operations = wrong_module(
        recording, request.line, near, runtime, request.versions, opset, folder
    )
    if operations is None:
        return ReproduceResult(None, _NOTHING)
    packages = _pins(request, runtime, "torch", "onnxscript")
    return ReproduceResult("module", "", tuple(operations), packages)


def _ends(request: ReproduceRequest, graph: Graph) -> list[str]:
    """Return the results at which a piece may end: the finding's, then those behind it."""
    named = [request.tensor] if request.tensor in graph.producers else []
    named += [
        name
        for node in graph.nodes
        if node.name and node.name == request.node
        for name in node.output
        if name
    ]
    first = next((name for name in named if name is not None), None)
    behind = graph.below([first]) if first is not None else set(graph.producers)
    later = [name for node in graph.nodes for name in node.output if name in behind]
    return list(dict.fromkeys((*(n for n in named if n is not None), *graph.outputs, *later)))


def _pins(request: ReproduceRequest, runtime: ModuleType, *further: str) -> tuple[str, ...]:
    return pinned((*further, *runtime.PACKAGES, "numpy"), request.versions)


def _conversion(request: ReproduceRequest, runtime: ModuleType, folder: Path) -> ReproduceResult:
    """Write a script that exports or converts the user's own module, copied beside it."""
    source = request.source
    if source.kind != "factory" or source.path is None or source.identifier is None:
        return ReproduceResult(None, "the model is not a function in a Python file")
    file = Path(source.path)
    if len(file.read_text(encoding="utf-8").splitlines()) > _MOST_MODULE_LINES:
        return ReproduceResult(None, f"{file.name} is too long for a tracker")
    if request.reference is None or request.case is None:
        return ReproduceResult(None, "there is no case with inputs")
    feeds = read_tensors(Path(request.reference), request.case, "inputs", request.contract.inputs)
    shutil.copy(file, folder / file.name)
    arrays = Arrays(feeds, None)
    arrays.save(folder)
    converts = request.failed == "build" and runtime.CONVERT is not None
    definition = runtime.CONVERT if converts else _EXPORT_WHOLE
    packages = ("torch", *(runtime.PACKAGES if converts else ("onnxscript", "onnx")), "numpy")
    statements = [
        "sys.path.insert(0, str(Path(__file__).parent))",
        f"module = importlib.import_module({file.stem!r})",
        f"model = module.{source.identifier}().eval()",
        *arrays.lines(),
        "tensors = {name: torch.from_numpy(each) for name, each in inputs.items()}",
        "with torch.no_grad():",
        "    model(**tensors)  # the model runs",
        "convert(model, tensors)",
    ]
    imports = ("import importlib", "import sys", "import torch")
    imports += tuple(runtime.IMPORTS) if converts else ()
    tool = runtime.TITLE if converts else "torch.onnx.export"
    claim = f"{tool} fails on a module that torch runs."
    text = script(claim, request.versions, packages, imports, [definition], statements)
    (folder / SCRIPT).write_text(text, encoding="utf-8")
    if outcome(folder / SCRIPT) is None:
        return ReproduceResult(None, "with fixed sizes the model converts")
    return ReproduceResult("conversion", "", (), pinned(packages, request.versions))


_EXPORT_WHOLE = """\
def convert(model, inputs):
    return torch.onnx.export(model, tuple(inputs.values()), dynamo=True)
"""
