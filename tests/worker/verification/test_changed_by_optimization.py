"""The node at which onnxruntime's optimizations change the results. onnxruntime 1.31 really folds
zeros around an image into a MaxPool, whose padding is minus infinity (onnxruntime#24737).
"""

import functools
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from convkit.protocol.findings.finding import Finding, Place
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions, Optimization
from convkit.worker.verification.changed_by_optimization import placed

GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
framed (float[1,1,4,4] x) => (float[1,1,5,5] out)
<int64[8] sides = {0,0,1,1,0,0,1,1}> {
  low = Neg(x)
  frame = Pad(low, sides)
  peak = MaxPool<kernel_shape = [2, 2]>(frame)
  out = Tanh(peak)
}
"""
FEEDS = {"x": np.linspace(1, 2, 16, dtype=np.float32).reshape(1, 1, 4, 4)}


def opened(level: Optimization):
    return functools.partial(
        session.open, device="cpu", options=OnnxRuntimeOptions(optimization=level)
    )


@pytest.mark.parametrize(("sign", "node"), [("low = Neg(x)", "MaxPool"), ("low = Abs(x)", None)])
def test_the_node_is_named_if_results_change(sign: str, node: str | None, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(GRAPH.replace("low = Neg(x)", sign))
    for each in model.graph.node:
        each.name = f"{each.op_type}_node"
        entry = each.metadata_props.add()
        entry.key, entry.value = "convkit.module", f"stem.{each.op_type.lower()}"
    onnx.save(model, tmp_path / "model.onnx")
    finding = Finding(
        "N401", message="optimizations change the results", place=Place(case="typical")
    )
    found = placed(finding, tmp_path / "model.onnx", FEEDS, opened("all"), opened("none"))
    if node is None:
        assert found is finding
        return
    assert (found.place.node, found.place.module) == ("MaxPool_node", "stem.maxpool")
    assert "It begins at MaxPool 'MaxPool_node'" in found.message
    assert found.place.case == "typical"
