import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest

from convkit.worker.graph.rewriting.opset_conversion import convert_opset
from convkit.worker.job_context import StageFailedError

# Softmax of opset 11 flattens to two dimensions first: copied as it is, opset 13 computes another.
OLD = """<ir_version: 6, opset_import: ["" : 11]>
g (float[n,2,3] x) => (float[n,2,3] y) {
    z = MatMul(x, W)
    y = Softmax<axis=1>(z)
}"""
BODY = """<ir_version: 6, opset_import: ["" : 11]>
g (float[n,2,3] x, bool b) => (float[n,2,3] y) {
    y = If (b) <
        then_branch = t () => (float[n,2,3] p) { p = Softmax<axis=1>(x) },
        else_branch = e () => (float[n,2,3] q) { q = Neg(x) }>
}"""
W = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)


def model(text: str) -> ir.Model:
    proto = onnx.parser.parse_model(text)
    if text is OLD:
        large = np.pad(W, ((0, 0), (0, 500)))  # a weight that the converter is not given
        proto.graph.initializer.append(onnx.numpy_helper.from_array(large, "wide"))
        proto.graph.node[0].input[1] = "W"
        cut = onnx.parser.parse_node("W = Slice(wide, from, to, across)")
        proto.graph.node.insert(0, cut)
        for name, value in (("from", 0), ("to", 3), ("across", 1)):
            tensor = onnx.numpy_helper.from_array(np.array([value]), name)
            proto.graph.initializer.append(tensor)
    return ir.from_proto(proto)


def result(model: ir.Model) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": np.arange(12, dtype=np.float32).reshape(2, 2, 3)})[0]


def test_a_converted_file_computes_the_same_with_its_weights():
    old = model(OLD)
    new = convert_opset(old, 17)
    assert (old.opset_imports[""], new.opset_imports[""]) == (11, 17)
    onnx.checker.check_model(ir.to_proto(new), full_check=True)
    assert [value.name for value in new.graph.inputs] == ["x"]
    np.testing.assert_allclose(result(new), result(old), rtol=1e-6)


def test_bodies_that_the_converter_would_leave_are_refused():
    with pytest.raises(StageFailedError, match="bodies of If, Loop and Scan, and Softmax"):
        convert_opset(model(BODY), 17)


def test_what_onnx_cannot_convert_is_said():
    with pytest.raises(StageFailedError, match="ONNX cannot convert the file from opset 11 to 90"):
        convert_opset(model(OLD), 90)
