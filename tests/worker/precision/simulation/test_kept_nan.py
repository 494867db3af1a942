"""Operators that lose NaN on a CPU, and their form that keeps it."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper

from convkit.worker.precision.simulation.kept_nan import with_nan_kept

SHAPE = (2, 3, 8)
WEIGHTS = {"w": (1, 64, 8), "r": (1, 64, 16)}


def model(operator: str, outputs: list[str], **attributes: object) -> onnx.ModelProto:
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, np.linspace(-1, 1, np.prod(shape)))
        for name, shape in (WEIGHTS.items() if operator == "LSTM" else ())
    ]
    node = helper.make_node(
        operator, ["x", *(each.name for each in weights)], outputs, **attributes
    )
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph([node], "g", [given], results, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def run(made: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {"x": x}))


@pytest.mark.parametrize(
    ("operator", "outputs", "attributes", "broken"),
    [
        ("MaxPool", ["y"], {"kernel_shape": [3], "pads": [1, 1]}, (0, 1, slice(4, 7))),
        ("GlobalMaxPool", ["y"], {}, (0, 1)),
        ("ReduceMax", ["y"], {"keepdims": 0}, ()),
        ("ReduceMin", ["y"], {"keepdims": 1}, ()),
        ("LSTM", ["y", "", "c"], {"hidden_size": 16}, ()),
    ],
)
def test_nan_is_kept_where_it_was_read_and_nowhere_else(
    operator: str, outputs: list[str], attributes: dict[str, object], broken: tuple[object, ...]
) -> None:
    made = model(operator, outputs, **attributes)
    keeping = ir.to_proto(with_nan_kept(ir.from_proto(made)))
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    for sound, same in zip(run(made, x), run(keeping, x), strict=True):
        np.testing.assert_array_equal(same, sound)

    x[0, 1, 5] = np.nan
    lost = operator != "LSTM"  # some of its kernels keep it
    assert np.isnan(run(made, x)[0]).any() != lost, "onnxruntime keeps it by now"
    for found in run(keeping, x):
        wanted = np.zeros(found.shape, bool)
        wanted[broken] = True
        np.testing.assert_array_equal(np.isnan(found), wanted)
