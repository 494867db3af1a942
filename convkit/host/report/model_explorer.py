"""A target's graph and its errors in the formats of Model Explorer: graph JSON and node data. Pure.

Formats: https://github.com/google-ai-edge/model-explorer/wiki (graph_builder, node_data_builder).
Model Explorer itself is never imported. Nodes are grouped by the modules of the original.
"""

from collections.abc import Callable, Mapping

from convkit.host.record.headroom import worst_comparison
from convkit.host.record.run_record import TargetReport
from convkit.host.report.report_text import factor_text, figure_text, share_text
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ModulePrecision, ViewedNode, ViewResult

# Upper bounds and the colors up to them, from harmless to wrong. The text stays legible on each.
_ERROR_COLORS = (
    (1e-6, "#ffffff"),
    (1e-5, "#fff7d6"),
    (1e-4, "#ffe9a8"),
    (1e-3, "#ffd27a"),
    (1e-2, "#ffb057"),
    (1e-1, "#f98a4b"),
    (1e30, "#e5604d"),
)
_HEADROOM_COLORS = ((1.0, "#e5604d"), (8.0, "#ffb057"), (64.0, "#ffe9a8"), (1e30, "#ffffff"))
_LOST = "#b3261e"
# By type; other float types, which stay as they are, stand out.
_TYPE_COLORS = {
    "float16": "#cfe3ff",
    "bfloat16": "#cfe3ff",
    "float32": "#ffd27a",
    "int8": "#cdeccf",
    "uint8": "#cdeccf",
    "int4": "#cdeccf",
    "uint4": "#cdeccf",
}
# The layers in the order in which Model Explorer gets them; it opens with the last one.
LAYERS = ("precision", "headroom", "error", "not-finite")
_INPUT, _OUTPUT = "input:", "output:"


def explorer_graph(view: ViewResult, target: TargetReport, case: str, title: str) -> Json:
    """Return the graph as a collection of one graph, which has the id `title`."""
    made_by = {name: node.writes[0] for node in view.nodes if node.writes for name in node.writes}
    made_by |= {name: _INPUT + name for name in view.inputs}
    places = {name: str(node.writes.index(name)) for node in view.nodes for name in node.writes}
    kept = {row.module: row for row in target.plan.modules} if target.plan is not None else {}
    nodes: list[Json] = [
        {"id": _INPUT + name, "label": name, "namespace": "", "attrs": _pairs({"input": name})}
        for name in view.inputs
    ]
    nodes += [
        _node(node, made_by, places, kept, view.range_of) for node in view.nodes if node.writes
    ]
    nodes += [_output(name, target, case, made_by, places) for name in view.outputs]
    about = {"": {"target": target.name, "verdict": target.headline, "case": case, **_about(view)}}
    graph: Json = {"id": title, "nodes": nodes, "groupNodeAttributes": about}
    return {"label": title, "graphs": [graph]}


def node_data(view: ViewResult, title: str) -> dict[str, Json]:
    """Return the layers that a graph can be colored by, by name, without those that say nothing."""
    nodes = [node for node in view.nodes if node.writes]
    layers: dict[str, Json] = {}
    types = {node.writes[0]: node.dtype for node in nodes if node.dtype in _TYPE_COLORS}
    if len(set(types.values())) > 1:
        layers["precision"] = _words("computes in", types, lambda each: _TYPE_COLORS[each], title)
    headroom = {node.writes[0]: node.headroom for node in nodes if node.headroom}
    if headroom:
        name = f"headroom in {view.range_of}"
        layers["headroom"] = _figures(name, headroom, _HEADROOM_COLORS, title)
    errors = {node.writes[0]: node.error for node in nodes if node.error is not None}
    if errors:
        layers["error"] = _figures("relative error", errors, _ERROR_COLORS, title)
    if lost := {node.writes[0]: "NaN or infinity" for node in nodes if node.lost}:
        layers["not-finite"] = _words("not finite", lost, lambda _: _LOST, title)
    return layers


def _node(
    node: ViewedNode,
    made_by: Mapping[str, str],
    places: Mapping[str, str],
    kept: Mapping[str, ModulePrecision],
    range_of: str,
) -> Json:
    facts = {
        "name": node.name,
        "module": node.module,
        "source": node.source or "",
        "computes in": node.dtype,
        "relative error": figure_text(node.error) if node.error is not None else "",
        "not finite": "yes: NaN or infinity, where a finite value is expected" if node.lost else "",
        "largest value": figure_text(node.largest) if node.largest is not None else "",
        f"headroom in {range_of}": f"{factor_text(node.headroom)} times" if node.headroom else "",
    }
    row = kept.get(node.module)
    if row is not None and node.dtype == "float32" and row.reasons:
        facts["why float32"] = "; ".join(row.reasons)
    shape = "x".join(map(str, node.shape)) if node.shape is not None else ""
    tensors: list[Json] = [
        {
            "id": str(place),
            "attrs": _pairs({"tensor_name": name, "shape": shape if not place else ""}),
        }
        for place, name in enumerate(node.writes)
    ]
    return {
        "id": node.writes[0],
        "label": node.op,
        "namespace": node.module.replace(".", "/"),
        "attrs": _pairs(facts),
        "incomingEdges": _edges(node.reads, made_by, places),
        "outputsMetadata": tensors,
    }


def _output(
    name: str,
    target: TargetReport,
    case: str,
    made_by: Mapping[str, str],
    places: Mapping[str, str],
) -> Json:
    facts = {"output": name}
    for verification in target.verifications:
        for compared in verification.cases:
            worst = worst_comparison([compared]) if compared.case == case else None
            if worst is not None and worst.output == name:
                share = f", {share_text(worst.share)}" if worst.limit is not None else ""
                facts[f"verdict {verification.label}".strip()] = f"{worst}{share}"
    return {
        "id": _OUTPUT + name,
        "label": name,
        "namespace": "",
        "attrs": _pairs(facts),
        "incomingEdges": _edges((name,), made_by, places),
    }


def _edges(
    reads: tuple[str, ...], made_by: Mapping[str, str], places: Mapping[str, str]
) -> list[Json]:
    """Return the edges from the nodes that make what is read; weights have none."""
    return [
        {
            "sourceNodeId": made_by[name],
            "sourceNodeOutputId": places.get(name, "0"),
            "targetNodeInputId": str(place),
        }
        for place, name in enumerate(reads)
        if name in made_by
    ]


def basis_text(view: ViewResult) -> str:
    """Return what the errors are measured against, as a sentence."""
    how = "simulated with every result rounded" if view.simulated else "run on the CPU"
    which = "The built graph" if view.shown == "built" else "The exported graph"
    match view.basis:
        case "original":
            against = "the exported graph in float32, whose outputs match the original's"
        case "corrected":
            places = ", ".join(view.corrected_at)
            against = f"the exported graph with the original's values at {places}"
        case "matched":
            against = "the original's own values, where they could be matched"
    return f"{which}, {how}, compared with {against}. Errors are relative to each result's RMS."


def outstanding(view: ViewResult) -> list[str]:
    """Return the nodes to look at first: the first that is not finite, the one with the largest
    error, and the one with the least headroom.
    """
    lines = []
    if lost := next((node for node in view.nodes if node.lost), None):
        lines.append(f"first NaN or infinity: {_place(lost)}")
    known = [(node.error, node) for node in view.nodes if node.error is not None]
    if known:
        error, node = max(known, key=lambda each: each[0])
        if error:
            lines.append(f"largest relative error: {figure_text(error)} at {_place(node)}")
        else:
            lines.append("every node returns exactly what it should")
    ranged = [(node.headroom, node) for node in view.nodes if node.headroom is not None]
    if ranged and not any("int" in node.dtype for node in view.nodes if node.error is not None):
        headroom, node = min(ranged, key=lambda each: each[0])
        how = f"{factor_text(headroom)} times" if headroom >= 1 else "none, it overflows"
        lines.append(f"least headroom in {view.range_of}: {how} at {_place(node)}")
    return lines


def _place(node: ViewedNode) -> str:
    where = ", ".join(filter(None, (node.module, node.source)))
    return f"{node.op} {node.name}" + (f" ({where})" if where else "")


def _about(view: ViewResult) -> dict[str, str]:
    return {"errors": basis_text(view)}


def _pairs(facts: Mapping[str, str]) -> list[Json]:
    return [{"key": key, "value": value} for key, value in facts.items() if value]


def _figures(
    name: str, values: Mapping[str, float], colors: tuple[tuple[float, str], ...], title: str
) -> Json:
    results: Json = {node: {"value": float(f"{value:.3g}")} for node, value in values.items()}
    thresholds: Json = [{"value": bound, "bgColor": color} for bound, color in colors]
    hidden: Json = ["sum", "avg"]
    layer: Json = {
        "name": name,
        "results": results,
        "thresholds": thresholds,
        "hideAggregatedStats": hidden,
    }
    return {title: layer}


def _words(name: str, values: Mapping[str, str], color: Callable[[str], str], title: str) -> Json:
    results: Json = {
        node: {"value": value, "bgColor": color(value)} for node, value in values.items()
    }
    return {title: {"name": name, "results": results}}
