"""Sessions for graphs with thousands of statistics."""

import time

import numpy as np
import onnx_ir as ir

from convkit.worker.precision.tensor_statistics import Reductions, open_session

NODES = 1200


def test_a_graph_with_thousands_of_statistics_opens_at_once() -> None:
    """With onnxruntime's reuse of memory, this grows with more than the square of the nodes."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 8]))
    nodes, last = [], x
    for place in range(NODES):
        node = ir.Node("", "Abs", [last])
        node.outputs[0].name = f"t{place}"
        node.outputs[0].type = x.type
        nodes, last = [*nodes, node], node.outputs[0]
    graph = ir.Graph([x], [], nodes=nodes, opset_imports={"": 17}, name="g")
    model = ir.Model(graph, ir_version=8)
    reductions = Reductions(model)
    for node in nodes:
        reductions.add(node.outputs[0], ("finite_max", "finite_min", "nonfinite"))
    layout = reductions.finish()
    started = time.process_time()
    session = open_session(model, None, 1)
    assert time.process_time() - started < 4.0
    wanted = list(layout.outputs)
    results = session.run(wanted, {"x": np.ones((2, 8), np.float32)})
    found = layout.read(dict(zip(wanted, results, strict=True)))
    assert found["t7", "finite_max"] == 1.0
