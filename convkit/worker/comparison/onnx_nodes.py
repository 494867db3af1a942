"""Matches the nodes of two graphs, and compares their order."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import onnx

from convkit.worker.graph.node_origins import MODULE_KEY, SOURCE_KEY

# Exporters' notes about the export: stack traces, paths, internal names of traced objects.
_NOISE_PREFIX = "pkg."
_NOISE = frozenset({SOURCE_KEY, "namespace"})


def metadata(entries: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    """Return the metadata that describe the model rather than its export."""
    return {
        entry.key: entry.value
        for entry in entries
        if not entry.key.startswith(_NOISE_PREFIX) and entry.key not in _NOISE
    }


def domain(name: str) -> str:
    """Return an operator set's domain; the standard one has two names."""
    return "" if name == "ai.onnx" else name


def described(node: onnx.NodeProto) -> str:
    """Format a node as one line: operator, inputs, outputs."""
    operator = f"{domain(node.domain)}::{node.op_type}" if domain(node.domain) else node.op_type
    overload = f":{node.overload}" if node.overload else ""
    return f"{operator}{overload}({', '.join(node.input)}) -> {', '.join(node.output)}"


def wiring(node: onnx.NodeProto) -> tuple[object, ...]:
    """Return a node's operator and connections, without its attributes."""
    return node.op_type, domain(node.domain), node.overload, tuple(node.input), tuple(node.output)


def label(node: onnx.NodeProto) -> str:
    """Return a node's display name: its name, or its operator and first output."""
    return node.name or f"{node.op_type} -> {_first_output(node)}"


def module(node: onnx.NodeProto) -> str:
    """Return the module that a node comes from, as a remark; "" if unknown."""
    path = next((entry.value for entry in node.metadata_props if entry.key == MODULE_KEY), "")
    return f"module {path}" if path else ""


def paired(
    first: Sequence[onnx.NodeProto], second: Sequence[onnx.NodeProto]
) -> Iterator[tuple[onnx.NodeProto | None, onnx.NodeProto | None]]:
    """Pair the nodes of two graphs by names that are unique in both, the others by their first
    output.

    Yields the first graph's nodes in order, then those that only the second has.
    """
    counts = Counter(node.name for node in first), Counter(node.name for node in second)
    by_name = {
        node.name: index
        for index, node in enumerate(second)
        if node.name and counts[1][node.name] == 1
    }
    partners: dict[int, int] = {
        index: by_name[node.name]
        for index, node in enumerate(first)
        if counts[0][node.name] == 1 and node.name in by_name
    }
    taken = set(partners.values())
    by_output = {
        _first_output(node): index for index, node in enumerate(second) if index not in taken
    }
    for index, node in enumerate(first):
        if (
            index not in partners
            and (found := by_output.pop(_first_output(node), None)) is not None
        ):
            partners[index] = found
            taken.add(found)
    for index, node in enumerate(first):
        yield node, second[partners[index]] if index in partners else None
    for index, node in enumerate(second):
        if index not in taken:
            yield None, node


def in_order(nodes: Sequence[onnx.NodeProto]) -> bool:
    """Return True if every value is produced before it is used, including in nested graphs."""
    last = {output: index for index, node in enumerate(nodes) for output in node.output if output}
    return all(
        last.get(name, -1) < index for index, node in enumerate(nodes) for name in _used(node)
    )


def _used(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (output.name for output in graph.output)
            for inner in graph.node:
                yield from _used(inner)


def _first_output(node: onnx.NodeProto) -> str:
    return next((output for output in node.output if output), "")
