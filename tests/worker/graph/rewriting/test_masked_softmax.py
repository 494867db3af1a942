import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from convkit.worker.graph.rewriting.masked_softmax import mask_with_infinity

# What the exporter makes of attention's softmax: mask with the smallest finite number, then replace
# NaN by zero.
GUARDED = """
<ir_version: 10, opset_import: ["" : 18]>
attention (float[n, 4] scores, bool[n, 4] mask) => (float[n, 4] weights)
<float zero = {0}, float least = {-3.4028235e38}>
{ bias = Where(mask, zero, least)
  biased = Add(scores, bias)
  raw = Softmax<axis = -1>(biased)
  bad = IsNaN(raw)
  weights = Where(bad, zero, raw) }
"""
# Attention that means the finite number: a fully masked row is uniform.
UNGUARDED = GUARDED.replace(
    "  bad = IsNaN(raw)\n  weights = Where(bad, zero, raw) }", "  weights = Identity(raw) }"
)


def run(model):
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
    rng = np.random.default_rng(0)
    mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0]], bool)
    return session.run(None, {"scores": rng.normal(size=(2, 4)).astype(np.float32), "mask": mask})[
        0
    ]


def read(text):
    return onnx_ir.from_proto(onnx.parser.parse_model(text))


def test_the_guard_acts_on_a_fully_masked_row_and_the_others_stay_as_they_are():
    model = read(GUARDED)
    before = run(model)
    assert before[1] == pytest.approx(0.25)  # the slip: torch gives zeros
    assert mask_with_infinity(model) == 1
    after = run(model)
    assert np.array_equal(after[0], before[0])
    assert np.array_equal(after[1], np.zeros(4))
    assert mask_with_infinity(model) == 0


def test_a_softmax_without_a_guard_keeps_its_mask():
    model = read(UNGUARDED)
    assert mask_with_infinity(model) == 0
    assert run(model)[1] == pytest.approx(0.25)


def test_a_mask_that_is_infinite_already_or_mild_is_left_alone():
    for number in ("-inf", "-1e4"):
        model = read(GUARDED)
        value = model.graph.initializers["least"]
        value.const_value = onnx_ir.tensor(np.float32(number))
        assert mask_with_infinity(model) == 0


def test_a_mask_shared_by_two_softmaxes_is_replaced_once():
    text = GUARDED.replace(
        "  weights = Where(bad, zero, raw) }",
        "  first = Where(bad, zero, raw)\n  raw2 = Softmax<axis = -1>(biased)\n  bad2 ="
        " IsNaN(raw2)\n  second = Where(bad2, zero, raw2)\n  weights = Add(first, second) }",
    )
    model = read(text)
    assert mask_with_infinity(model) == 1
    assert np.array_equal(run(model)[1], np.zeros(4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_smallest_number_of_a_half_precision_type_is_replaced_too(dtype):
    """-65504 in float16 and -3.39e38 in bfloat16, which numpy knows by its bits only."""
    kind = onnx_ir.DataType[dtype.upper()]
    text = GUARDED.replace("float[n, 4]", f"{dtype}[n, 4]").replace(
        "float zero = {0}, float least = {-3.4028235e38}", f"{dtype} zero = {{0}}"
    )
    proto = onnx.parser.parse_model(text)
    for number, expected in ((float(kind.min), 1), (-1e4, 0)):
        del proto.graph.initializer[1:]
        stored = onnx_ir.tensor(np.array(number, kind.numpy()), name="least")
        proto.graph.initializer.append(onnx_ir.to_proto(stored))
        model = onnx_ir.from_proto(proto)
        assert mask_with_infinity(model) == expected
        where = next(node for node in model.graph if node.op_type == "Where")
        assert where.inputs[2].const_value.dtype == kind
        assert np.isneginf(float(where.inputs[2].const_value.numpy())) == bool(expected)
