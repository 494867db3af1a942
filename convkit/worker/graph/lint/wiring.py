"""Names: every value is computed once, before it is read; outputs come from nodes."""

import difflib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import onnx

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.lint.graph_nodes import listed, name_of, subgraphs, title


def check(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Return E234 for names that are used twice, read too early, or lead nowhere."""
    graph = model.graph
    findings = _twice(graph, path)
    findings += _graph(graph, frozenset())
    known = _own(graph) | {name for node in graph.node for name in node.output}
    for output in graph.output:
        if output.name not in known:
            findings.append(
                _wired(
                    f"the output {output.name!r} is computed by no node{_near(output.name, known)}",
                    Place(tensor=output.name),
                    "Name the output of the node that computes it so, or remove the output.",
                )
            )
    return findings


def _twice(graph: onnx.GraphProto, path: Path) -> list[Finding]:
    """Return the names that a graph lists more than once."""
    made = [name for node in graph.node for name in node.output if name]
    lists: dict[str, Iterable[str]] = {
        "inputs": [each.name for each in graph.input],
        "outputs": [each.name for each in graph.output],
        "weights": [each.name for each in graph.initializer],
        "results of nodes": made,
    }
    findings = []
    for what, names in lists.items():
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            findings.append(
                _wired(
                    f"{path.name} has two {what} of one name: {listed(repeated)} (duplicate names)",
                    Place(tensor=repeated[0]),
                    "Remove one of them, or give it its own name.",
                )
            )
    fed = {each.name for each in graph.input} | {each.name for each in graph.initializer}
    if both := [name for name in dict.fromkeys(made) if name in fed]:
        findings.append(
            _wired(
                f"{listed(both)} is both an input or weight and the result of a node (duplicate"
                " names)",
                Place(tensor=both[0]),
                "Give the node's result its own name.",
            )
        )
    return findings


def _own(graph: onnx.GraphProto) -> frozenset[str]:
    """Return the names that a graph has before its first node."""
    sparse = {each.values.name for each in graph.sparse_initializer}
    named = {each.name for each in (*graph.input, *graph.initializer)}
    return frozenset(named | sparse | {""})


def _graph(graph: onnx.GraphProto, outer: frozenset[str]) -> list[Finding]:
    """Return values that nodes read before, or without, any node computing them."""
    made = {name: node for node in graph.node for name in node.output if name}
    known = set(outer | _own(graph))
    findings = []
    early: list[tuple[str, onnx.NodeProto]] = []
    for node in graph.node:
        for name in node.input:
            if name in known:
                continue
            if name in made:
                early.append((name, node))
            else:
                findings.append(_dangling(name, node, known | made.keys()))
        known |= set(node.output)
    if early:
        findings.append(_unsorted(graph, made, early))
    for node in graph.node:
        for inner in subgraphs(node):
            findings += _graph(inner, frozenset(known))
    return findings


def _dangling(name: str, node: onnx.NodeProto, known: set[str]) -> Finding:
    return _wired(
        f"{title(node)} reads {name!r}, which no node, input or weight provides (a dangling name)"
        f"{_near(name, known)}",
        Place(tensor=name, node=name_of(node)),
        "Connect the node's input to a value that the graph has.",
    )


def _unsorted(
    graph: onnx.GraphProto, made: dict[str, onnx.NodeProto], early: list[tuple[str, onnx.NodeProto]]
) -> Finding:
    name, node = early[0]
    cycle = _has_cycle(graph, made)
    what = "depends on itself: its nodes form a cycle" if cycle else "is not sorted"
    remedy = (
        "Break the cycle: a node reads what is computed from its own result."
        if cycle
        else "Sort the nodes so that each comes after those whose results it reads."
    )
    return _wired(
        f"the graph {what}: {title(node)} reads {name!r} before {title(made[name])} computes it"
        + (f", and {len(early) - 1} more are out of order" if len(early) > 1 else ""),
        Place(tensor=name, node=name_of(node)),
        remedy,
    )


def _has_cycle(graph: onnx.GraphProto, made: dict[str, onnx.NodeProto]) -> bool:
    """Return True if the nodes have no topological order."""
    waiting = list(graph.node)
    missing = set(made)
    while waiting:
        later = [node for node in waiting if missing & set(node.input)]
        if len(later) == len(waiting):
            return True
        for node in waiting:
            if not missing & set(node.input):
                missing -= set(node.output)
        waiting = later
    return False


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [each for each in known if each], 1, 0.8)
    return f"; perhaps {close[0]!r} was meant" if close else ""


def _wired(message: str, place: Place, remedy: str) -> Finding:
    return Finding("E234", message, place, remedy=Remedy(remedy))


def check_purpose(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Return E235 for a graph that computes nothing, and for outputs that are inputs or weights."""
    graph = model.graph
    if not graph.output:
        return [_purpose(f"{path.name} has no outputs", Place(source=path.name), "error")]
    inputs = {each.name for each in graph.input}
    weights = {each.name for each in graph.initializer} - inputs
    same = [each.name for each in graph.output if each.name in inputs]
    fixed = [each.name for each in graph.output if each.name in weights]
    if not graph.node:
        message = f"{path.name} computes nothing: its graph is empty, without a node"
        return [_purpose(message, Place(source=path.name), "error")]
    findings = []
    if same:
        verb = "is an input" if len(same) == 1 else "are inputs"
        message = f"the output {listed(same)} {verb}: the graph returns it unchanged"
        findings.append(_purpose(message, Place(tensor=same[0]), "warning"))
    if fixed:
        verb = "is a weight" if len(fixed) == 1 else "are weights"
        message = f"the output {listed(fixed)} {verb}: the same for every input"
        findings.append(_purpose(message, Place(tensor=fixed[0]), "warning"))
    return findings


def _purpose(message: str, place: Place, severity: str) -> Finding:
    remedy = Remedy("Export the model again; check which tensors it returns.")
    if severity == "error":
        return Finding("E235", message, place, remedy=remedy)
    return Finding("E235", message, place, remedy=remedy, severity="warning")
