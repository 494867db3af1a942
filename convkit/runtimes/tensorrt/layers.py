"""The engine inspector's table of layers, and a check that the engine computes in the planned
types. Pure.

TensorRT 10 includes a tensor's type in `Format/Datatype` ("Row major linear FP16 format"); 11 has a
separate `Datatype`. Both list the ONNX nodes of a layer in `Metadata`, as `[ONNX Layer: name]`.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.graph.typed_graph import with_types

_NODE = re.compile(r"\[ONNX Layer: ([^\]\x1e\x1f]+)\]")
# The inspector's names for float types, longest first: BF16 must not match FP16.
_TYPES = {
    "bfloat16": r"\b(BF16|BFloat16|bfloat16)\b",
    "float16": r"\b(FP16|Half|half|float16)\b",
    "float32": r"\b(FP32|Float|float|float32)\b",
}
_MOST_NAMED = 5


_FLOATS = ("float16", "bfloat16", "float32")


@dataclasses.dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine: its ONNX nodes, and the float types of its inputs and outputs."""

    name: str
    kind: str
    nodes: tuple[str, ...]
    given: tuple[str, ...]
    results: tuple[str, ...]


def read_layers(text: str) -> list[EngineLayer]:
    """Return the layers in the inspector's JSON; empty if it contains only names."""
    document = json.loads(text)
    rows = document.get("Layers", []) if isinstance(document, dict) else []
    return [_layer(row) for row in rows if isinstance(row, dict)]


def _layer(row: Mapping[str, Json]) -> EngineLayer:
    metadata = row.get("Metadata")
    return EngineLayer(
        name=str(row.get("Name", "")),
        kind=str(row.get("LayerType", "")),
        nodes=tuple(dict.fromkeys(_NODE.findall(metadata if isinstance(metadata, str) else ""))),
        given=_types(row.get("Inputs")),
        results=_types(row.get("Outputs")),
    )


def _types(tensors: Json) -> tuple[str, ...]:
    """Return the float types of those tensors that have one."""
    found = []
    for tensor in tensors if isinstance(tensors, list) else ():
        fields = tensor.items() if isinstance(tensor, dict) else ()
        said = " ".join(
            str(value) for key, value in fields if "datatype" in key.lower() or key == "Type"
        )
        found += [name for name, pattern in _TYPES.items() if re.search(pattern, said)][:1]
    return tuple(found)


def check_layers(layers: Sequence[EngineLayer], planned: Mapping[str, str]) -> list[Finding]:
    """Return E214 if an engine computes in float types other than planned.

    `planned` maps each ONNX node to the float type of its results in the graph that the engine was
    built from. A layer with several nodes may have the type of any of them; casts between them are
    TensorRT's own.
    """
    wrong = []
    for layer in layers:
        wanted = {planned[node] for node in layer.nodes if node in planned}
        if wanted and (other := [kind for kind in layer.results if kind not in wanted]):
            wrong.append((layer, sorted(wanted), other))
    known = [layer for layer in layers if any(node in planned for node in layer.nodes)]
    if not known:
        message = (
            "the engine's inspector names no ONNX node, so convkit cannot check its layers' types"
            " against the plan"
        )
        return [Finding("E214", message, evidence={"layers": len(layers)}, severity="warning")]
    if not wrong:
        return []
    layer, wanted_types, found = wrong[0]
    names = ", ".join(item[0].name for item in wrong[:_MOST_NAMED]) + (
        ", ..." if len(wrong) > _MOST_NAMED else ""
    )
    return [
        Finding(
            "E214",
            f"{len(wrong)} of {len(known)} layers of the engine compute in different types than "
            f"planned: {layer.name} returns {', '.join(found)} instead of"
            f" {', '.join(wanted_types)} ({names})",
            Place(node=layer.nodes[0]),
            {"layers": [item[0].name for item in wrong], "found": found, "planned": wanted_types},
            Remedy(
                "Build at builder_level: 0. Please report this with layers.json, because TensorRT"
                " did not build what convkit asked for."
            ),
        )
    ]


def planned_types(graph: Path) -> dict[str, str]:
    """Return the float type of each named node's first float result."""
    planned = {}
    for node, _ in nodes_with_modules(with_types(load_model(graph))):
        types = [contract_dtype(value.dtype) for value in node.outputs if value.dtype is not None]
        floats = [kind for kind in types if kind in _FLOATS]
        if node.name and floats:
            planned[node.name] = str(floats[0])
    return planned
