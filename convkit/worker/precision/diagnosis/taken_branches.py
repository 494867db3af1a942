"""Replaces each If of a graph by the nodes of the branch that one case takes.

Only values of the main graph are measured, so a cause inside a branch would stay hidden.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.node_modules import module_path
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.precision.tensor_statistics import open_session


def open_taken_branches(
    model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int | None
) -> ir.Model:
    """Return a copy of a prepared model, with the branches that `feeds` take in place of its Ifs;
    the model itself if it has none.

    Ifs in the bodies of loops stay: they may take another branch at each iteration.
    """
    if not _ifs(model):
        return model
    opened = model.clone()
    while ifs := _ifs(opened):
        taken = _conditions(opened, ifs, feeds, threads)
        for node in ifs:
            _open(node, "then_branch" if taken[_condition(node)] else "else_branch")
    return opened


def _ifs(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "If" and node.domain == ""]


def _condition(node: ir.Node) -> str:
    (condition,) = node.inputs
    assert condition is not None
    return condition.name or ""


def _conditions(
    model: ir.Model, ifs: list[ir.Node], feeds: Mapping[str, np.ndarray], threads: int | None
) -> dict[str, bool]:
    """Return the conditions of Ifs of the main graph, by name."""
    names = list(dict.fromkeys(_condition(node) for node in ifs))
    probe = model.clone()
    places = (*probe.graph.inputs, *probe.graph.initializers.values(), *probe.graph.outputs)
    made = (value for node in probe.graph for value in node.outputs)
    values = {value.name: value for value in (*places, *made)}
    probe.graph.outputs.clear()
    probe.graph.outputs.extend(values[name] for name in names)
    with tempfile.TemporaryDirectory(prefix="convkit-") as folder:
        path = Path(folder) / "conditions.onnx"
        save_model(probe, path)
        found = open_session(path, None, threads).run(names, dict(feeds))
    return {name: bool(np.asarray(value).item()) for name, value in zip(names, found, strict=True)}


def _open(node: ir.Node, side: str) -> None:
    """Move the nodes of a branch to the place of its If."""
    graph = node.graph
    assert graph is not None
    branch = node.attributes[side].as_graph()
    results = list(branch.outputs)
    branch.outputs.clear()
    for name, value in list(branch.initializers.items()):
        del branch.initializers[name]
        graph.register_initializer(value)
    inner = list(branch)
    for each in inner:
        if not module_path(each) and module_path(node):
            each.metadata_props[MODULE_KEY] = module_path(node)
    branch.remove(inner)
    graph.insert_before(node, inner)
    for result, output in zip(results, list(node.outputs), strict=True):
        # A branch may return a value of the outer graph, which keeps its name.
        taken = ir.Node("", "Identity", [result], num_outputs=1, name=f"{output.name}.taken")
        graph.insert_before(node, taken)
        _take_place(output, taken.outputs[0])
    graph.remove(node, safe=True)


def _take_place(old: ir.Value, new: ir.Value) -> None:
    name = old.name
    new.type, new.shape = old.type, old.shape
    old.name = f"{name}.of_if"
    new.name = name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
