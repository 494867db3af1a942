"""The smallest piece of a graph that a runtime computes wrong, or does not load."""

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, Values, reads
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.graph.standard_evaluator import standard_evaluator
from convkit.worker.reproducers.script_text import (
    MODEL,
    SCRIPT,
    Arrays,
    outcome,
    script,
    shows_difference,
)

# Steps from a result back to what the piece is fed with.
_DEPTHS = (1, 2, 3, 4, 8, 16, 1_000_000)
# Results that are tried as the piece's output, for a difference and for a refusal.
_ENDS, _REFUSED_ENDS = 4, 60
# Seconds for all pieces of a model that is refused.
_REFUSED_SECONDS = 30.0
# Nodes of a piece that are tried by themselves.
_INNER = 16
# Words of a refusal that say what is wrong, not where in memory or in which file of the runtime.
_WORD = re.compile(r"[A-Za-z]{4,}")
# The share of them that two messages about one cause have in common.
_ALIKE = 0.6


def wrong_piece(
    graph: Graph,
    values: Values,
    ends: Sequence[str],
    runtime: ModuleType,
    versions: Mapping[str, str],
    folder: Path,
) -> list[onnx.NodeProto] | None:
    """Write the script of the smallest piece that ends at one of the results and whose result, from
    the expected `values`, is not the expected one; return its nodes, None if there is none.
    """

    def shows(nodes: list[int], end: str) -> bool:
        model, inputs = _model(graph, nodes, end, values)
        if inputs is None or end not in values:
            return False
        _write(model, Arrays(inputs, values[end]), end, runtime, versions, folder)
        return shows_difference(folder / SCRIPT)

    for end in [name for name in ends if name in values][:_ENDS]:
        for nodes in _pieces(graph, end):
            if not shows(nodes, end):
                continue
            inner = [index for index in nodes[:_INNER] if len(nodes) > 1]
            alone = (index for index in inner if shows([index], graph.nodes[index].output[0]))
            if (single := next(alone, None)) is not None:
                return [graph.nodes[single]]
            shows(nodes, end)
            return [graph.nodes[index] for index in nodes]
    return None


def refused_piece(
    graph: Graph, values: Values, runtime: ModuleType, versions: Mapping[str, str], folder: Path
) -> list[onnx.NodeProto] | None:
    """Write the script of the smallest piece that the runtime refuses with the message of the whole
    graph; return its nodes, None if it does not refuse that.
    """

    def refusal(nodes: list[int], end: str) -> str:
        model, inputs = _model(graph, nodes, end, values)
        if inputs is None:
            return ""
        _write(model, Arrays(inputs, None), end, runtime, versions, folder)
        return str(outcome(folder / SCRIPT) or "")

    last = graph.outputs[0]
    whole = refusal(graph.closure([last], graph.inputs), last)
    if not whole:
        return None
    ends = [name for node in graph.nodes for name in node.output if name][:_REFUSED_ENDS]
    deadline = time.monotonic() + _REFUSED_SECONDS
    for depth, end in itertools.product(_DEPTHS[:-1], ends):
        nodes = _behind(graph, end, depth)
        if time.monotonic() > deadline:
            break
        if _alike(refusal(nodes, end), whole):
            return [graph.nodes[index] for index in nodes]
    refusal(graph.closure([last], graph.inputs), last)
    return list(graph.nodes)


def is_right(nodes: Sequence[onnx.NodeProto], folder: Path, values: Values) -> bool | None:
    """Say whether a piece computes what is expected where ONNX's own evaluator runs it: then its
    runtime is wrong, not the graph. None if that evaluator cannot run it.
    """
    model = onnx.load(folder / MODEL)
    (end,) = (output.name for output in model.graph.output)
    try:
        evaluator = standard_evaluator(model)
        (found,) = evaluator.run(None, {each.name: values[each.name] for each in model.graph.input})
    except Exception:  # noqa: BLE001 - it lacks operators, and raises whatever
        return None
    assert nodes
    return relative_error(np.asarray(found), values[end]) <= CLOSE


def _pieces(graph: Graph, end: str) -> Iterator[list[int]]:
    """Yield the nodes behind a result, few first."""
    seen: list[int] = []
    for depth in _DEPTHS:
        nodes = _behind(graph, end, depth)
        if nodes != seen:
            yield nodes
        seen = nodes


def _behind(graph: Graph, end: str, depth: int) -> list[int]:
    """Return the nodes that compute a result in so many steps, in order."""
    found: set[int] = set()
    last = [end]
    for _ in range(min(depth, len(graph.nodes))):
        producers = {graph.producers[name] for name in last if name in graph.producers} - found
        if not producers:
            break
        found |= producers
        last = [name for index in producers for name in reads(graph.nodes[index])]
    return sorted(found)


def _model(
    graph: Graph, nodes: Sequence[int], end: str, values: Values
) -> tuple[onnx.ModelProto, dict[str, np.ndarray] | None]:
    """Return a model of some nodes, and the values of its inputs; None if one is not known."""
    kept = [graph.nodes[index] for index in nodes]
    made = {name for node in kept for name in node.output}
    read = list(dict.fromkeys(name for node in kept for name in reads(node) if name not in made))
    inputs, inside, is_known = dict[str, np.ndarray](), [], bool(kept)
    for name in read:
        if name in graph.exotic:
            inside.append(graph.exotic[name])
        elif name in graph.constants:
            inside.append(onnx.numpy_helper.from_array(np.asarray(graph.constants[name]), name))
        elif name in values:
            inputs[name] = np.ascontiguousarray(values[name]).reshape(values[name].shape)
        else:
            is_known = False
    plain = []
    for node in kept:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.metadata_props[:]
        copy.ClearField("doc_string")
        plain.append(copy)
    outputs = [_info(end, values[end])] if end in values else [_unknown(end)]
    piece = onnx.helper.make_graph(
        plain, "piece", [_info(name, each) for name, each in inputs.items()], outputs, inside
    )
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in graph.opsets]
    model = onnx.helper.make_model(piece, opset_imports=opsets, ir_version=graph.ir_version)
    model.producer_name = ""
    return model, inputs if is_known else None


def _info(name: str, values: np.ndarray) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, values.shape)


def _unknown(name: str) -> onnx.ValueInfoProto:
    return onnx.helper.make_empty_tensor_value_info(name)


def _write(
    model: onnx.ModelProto,
    arrays: Arrays,
    end: str,
    runtime: ModuleType,
    versions: Mapping[str, str],
    folder: Path,
) -> None:
    onnx.save(model, folder / MODEL)
    arrays.save(folder)
    operators = ", ".join(dict.fromkeys(node.op_type for node in model.graph.node))
    title = f"{runtime.TITLE} {versions.get(runtime.PACKAGES[0], '')}"
    if arrays.expected is None:
        claim = f"{title} refuses this model of {len(model.graph.node)} nodes ({operators})."
    else:
        claim = f"{title} computes another result than expected: {operators}."
    statements = [
        *arrays.lines(),
        f'model = onnx.load(Path(__file__).with_name("{MODEL}"))',
        f'found = run(model, inputs)["{end}"]',
    ]
    if arrays.expected is not None:
        statements += ['print("found:", found)', 'print("expected:", expected)', arrays.check()]
    packages = (*runtime.PACKAGES, "numpy")
    imports = ("import onnx", *runtime.IMPORTS)
    text = script(claim, versions, packages, imports, [runtime.RUN], statements)
    (folder / SCRIPT).write_text(text, encoding="utf-8")


def _alike(message: str, other: str) -> bool:
    """Say whether two refusals have one cause: most of their words are the same."""
    words, wanted = set(_WORD.findall(message)), set(_WORD.findall(other))
    return bool(words) and len(words & wanted) >= _ALIKE * len(words | wanted)
