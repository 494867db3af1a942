"""Saturating products of no rows, as a mixture's expert has that no token chose."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convkit.protocol.messages import Quantization
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.saturating_modules import opened_products


def test_a_product_of_no_rows_has_its_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    weights = (np.sign(rng.normal(size=(1, 24))) * (0.9 + 0.1 * rng.random((64, 24)))).astype("f")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="layer")],
        "expert",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 24])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(weights[0], "b")],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    feeds = [{"x": rng.random((8, 64), dtype=np.float32)}]
    quantize_file(tmp_path / "m.onnx", tmp_path / "q.onnx", Quantization("static-int8"), feeds)
    with opened_products(tmp_path / "q.onnx") as switched:
        assert len(switched.nodes) == 1
        none = switched.run({"x": np.zeros((0, 64), np.float32)}, [0])
        assert none["y"].shape == (0, 24)
        exact, saturating = (switched.run(feeds[0], on)["y"] for on in ((), (0,)))
    assert np.abs(exact - saturating).max() > 0.1
