"""The values of one tensor in the simulation of a low precision."""

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_files import save_model
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import Assignment
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.tensor_statistics import open_session
from convkit.worker.precision.threads import threads


def simulated_tensor(
    model: ir.Model,
    assignment: Assignment,
    tensor: str,
    feeds: Mapping[str, np.ndarray],
    *,
    saturate: bool,
) -> np.ndarray | None:
    """Return a tensor's values, with finite constants if `saturate`; None if the lowered graph does
    not have it.
    """
    lowered = simulate(convert(model, assignment, saturate=saturate).model)
    values = {value.name: value for node in lowered.graph for value in node.outputs}
    value = values.get(_before_casts(model, tensor, values.keys()))
    if value is None:
        return None
    lowered.graph.outputs.clear()
    lowered.graph.outputs.append(value)
    with tempfile.TemporaryDirectory(prefix="convkit-") as folder:
        path = Path(folder) / "simulation.onnx"
        save_model(lowered, path)
        session = open_session(path, None, threads())
        found: np.ndarray = session.run([value.name], dict(feeds))[0]
    return found


def _before_casts(model: ir.Model, tensor: str, known: Collection[str | None]) -> str:
    """Return the tensor that holds the same values in a lowered graph, which leaves out casts."""
    makers = {value.name: node for node in model.graph for value in node.outputs}
    while tensor not in known:
        node = makers.get(tensor)
        if node is None or node.op_type != "Cast" or node.inputs[0] is None:
            break
        tensor = str(node.inputs[0].name)
    return tensor
