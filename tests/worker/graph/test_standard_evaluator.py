"""GatherElements is evaluated as the standard defines it."""

import numpy as np
import onnx
import onnxruntime
import pytest

from convkit.worker.graph.standard_evaluator import standard_evaluator


def gathering(axis: int, data: str, indices: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[{data}] x, int64[{indices}] i) => (float[{indices}] y) {{
            y = GatherElements <axis: int = {axis}> (x, i)
        }}"""
    )


# onnxruntime takes fewer indices along other axes, too, and is right.
@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [((2, 40, 5), (2, 3, 5), 1), ((4, 3), (2, 3), -1), ((4, 3, 2), (4, 1, 7), 2), ((40,), (0,), 0)],
)
def test_fewer_indices_and_many_elements(
    shape: tuple[int, ...], indices: tuple[int, ...], axis: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    i = rng.integers(-shape[axis], shape[axis], indices)
    model = gathering(axis, *(",".join(map(str, each)) for each in (shape, indices)))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"x": x, "i": i})
    (found,) = standard_evaluator(model).run(None, {"x": x, "i": i})
    np.testing.assert_array_equal(found, wanted)


def test_an_index_out_of_range_is_an_error() -> None:
    evaluator = standard_evaluator(gathering(0, "3", "2"))
    with pytest.raises(ValueError, match="out of range for 3 elements"):
        evaluator.run(None, {"x": np.zeros(3, np.float32), "i": np.array([0, 3])})
