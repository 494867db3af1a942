"""The diagnose job of a runtime of which intermediate tensors can be had: the built model beside
the exported graph, tensor by tensor.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.worker.building.built_files import EXPORTED_FILE, find_model
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cause.graphs.runnable_graph import label, module_of, read_graph, source_of
from convkit.worker.cause.place.built_against_graph import ExposedModel, compare_built
from convkit.worker.cause.place.built_difference import BuiltDifference
from convkit.worker.cause.place.kernel_faults import release as onnxruntime_release
from convkit.worker.cause.place.lost_nan import Computes
from convkit.worker.cause.wording.cause_findings import instead_of
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import RuntimeSession
from convkit.worker.steps.earlier_calls import earlier_call_finding

if TYPE_CHECKING:
    import onnx


_WITHIN_INT32 = Remedy(
    "Keep whole numbers within int32, or compute with floats where they are exact."
    " Neither was tried."
)


@dataclasses.dataclass(frozen=True)
class Release:
    """The release that a built model ran in: `name` is a message's, `tool` the key of a recipe."""

    name: str
    tool: str

    @property
    def advice(self) -> str:
        """What helps against any release's faults."""
        return f"Use a different release ({self.tool})"


def diagnose_built(
    request: DiagnoseRequest,
    model: ExposedModel,
    opened: Callable[[], RuntimeSession],
    release: Release,
    context: Context,
    computes: Computes | None = None,
) -> tuple[DiagnoseResult, list[Finding]]:
    """Say what a runtime makes of a graph that agrees with the original: N401, N408, or N402 if no
    place is proven; N410 if the built model agrees with its graph in a session that `opened` has
    just opened, and not after other calls; else nothing. `computes` runs a graph in the runtime.
    """
    assert request.exported is not None
    context.progress("comparing the built model with the exported graph", done=0.1)
    graph = read_graph(find_model(Path(request.exported), EXPORTED_FILE))
    inputs = request.contract.inputs
    feeds = read_tensors(Path(request.reference), request.case, "inputs", inputs)
    outputs = request.contract.outputs
    original = read_tensors(Path(request.reference), request.case, "outputs", outputs)
    found = compare_built(graph, model, dict(feeds), dict(original), computes)
    if found is None:
        context.progress("looking whether earlier calls matter", done=0.5)
        earlier = earlier_call_finding(request, opened, release.name, release.advice)
        return DiagnoseResult(None, None, 0), [] if earlier is None else [earlier]
    nodes = {name: node for node in graph.nodes for name in node.output}
    placed = found.kind != "unplaced"
    result = DiagnoseResult(_finite(found.before), _finite(found.after), int(placed))
    return result, [finding_of(found, nodes, release, request.case)]


def finding_of(
    found: BuiltDifference, nodes: "Mapping[str, onnx.NodeProto]", release: Release, case: str
) -> Finding:
    """Return the finding of a difference; `nodes` are the graph's by what they compute."""
    evidence: dict[str, Json] = {
        "kind": found.kind,
        "tensors": list(found.names),
        "before": _figure(found.before),
        "after": _figure(found.after),
        "proven": found.kind != "unplaced",
    }
    if found.kind == "unplaced":
        if found.elsewhere is not None:
            evidence["fallback"] = True
        return Finding(
            "N402",
            f"{release.name} differs from the exported graph in case {case!r}: the outputs are off"
            f" by {found.before:.2g}, and no place was found that explains it",
            Place(case=case),
            evidence,
            _elsewhere(found) or Remedy(f"{release.advice}, or report it with the exported graph."),
        )
    node = nodes[found.names[0]]
    evidence["owner"] = "fusion" if found.kind == "fused" else "kernel"
    module, source = module_of(node), source_of(node)
    name = label(node)
    where = f"{node.op_type} {name}"
    where += f" (module {module}{f', at {source}' if source else ''})" if module else ""
    place = Place(tensor=found.names[0], node=name, module=module or None, source=source, case=case)
    if found.kind == "fused":
        message = (
            f"{release.name} changes the results when it merges {where} with what follows: the"
            f" outputs are off by {found.before:.2g} as compiled, and by {found.after:.2g} with"
            " this tensor kept"
        )
        remedy = Remedy(
            "Return this line's result from the model as well, which keeps the runtime from merging"
            " it: convkit tried it on the built model, whose outputs are then off by"
            f" {found.after:.2g}. A different release ({release.tool}) was not tried.",
            proven=True,
        )
        return Finding("N401", message, place, evidence | {"fallback": True}, remedy)
    if found.beyond is not None:
        message = (
            f"{release.name} computes whole numbers in int32, and {where} needs {found.beyond},"
            f" which int32 cannot hold: the outputs are off by {found.before:.2g} now, and"
        )
        message += (
            f" by {found.after:.2g} with the graph's value here"
            if found.kind == "computed"
            else " this is the first place that is wrong"
        )
        remedy = _elsewhere(found, release.name) or _WITHIN_INT32
        if found.instead is not None:
            remedy = _written_so(found)
        elif found.elsewhere is not None:
            evidence["fallback"] = True
        return Finding("T108", message, place, evidence | {"value": found.beyond}, remedy)
    message = (
        f"{release.name} does not compute what the exported graph says at {where}: the outputs are"
        f" off by {found.before:.2g} now, and by {found.after:.2g} with the graph's value here"
    )
    if found.width is not None:
        message = (
            f"{release.name} computes numbers at {where} {found.width}, and the graph is right: the"
            f" outputs are off by {found.before:.2g} now, and "
        )
        message += (
            "this is the first place that is wrong"
            if found.kind == "wide"
            else f"by {found.after:.2g} with the graph's value here"
        )
    if found.added is not None:
        message = (
            f"{release.name}'s kernel is off in {where}, and the graph is right: of {found.added}"
            " float32 values, rounding at each addition adds up; the outputs are off by"
            f" {found.before:.2g} now, and by {found.after:.2g} with the graph's value here"
        )
    if found.loses_nan:
        message = (
            f"{release.name} loses NaN in {where}: it returns other values where an input is NaN,"
            " and the graph is right, which passes NaN on as the original does; with the graph's"
            f" value here, the outputs are off by {found.after:.2g}"
        )
    otherwise = "or write this part of the model with other operations"
    remedy = _elsewhere(found, release.name) or Remedy(
        f"{release.advice}, {otherwise}. Neither was tried."
    )
    if found.instead is not None:
        evidence["instead"] = found.instead
        remedy = _written_so(found)
    elif found.elsewhere is not None:
        evidence["fallback"] = True
    return Finding("N408", message, place, evidence, remedy)


def _elsewhere(found: BuiltDifference, formless: str | None = None) -> Remedy | None:
    """Return the advice to serve the model with onnxruntime, if it computes the same graph right;
    else None. `formless` is a runtime in which other forms of the place were looked for in vain.
    With `fallback` among the evidence, the host looks for a change of the recipe first.
    """
    if found.elsewhere is None:
        return None
    text = (
        "Serve this model with onnxruntime: convkit ran the same graph with"
        f" {onnxruntime_release()} in this case, and its outputs are off by {found.elsewhere:.2g}."
    )
    if formless is not None:
        text += f" No other form of this line that convkit knows is right in {formless}."
    return Remedy(text, proven=True)


def _written_so(found: BuiltDifference) -> Remedy:
    """Return the advice to write places in other forms, with what came of it."""
    assert found.instead is not None
    remedy = instead_of(found.instead)
    if found.repaired is None:
        return remedy
    where = f"at {found.places} nodes of this kind" if found.places > 1 else "here"
    text = f"{remedy.text} With the graph written so {where}, the outputs are off by"
    return dataclasses.replace(remedy, text=f"{text} {found.repaired:.2g}.")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _figure(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
