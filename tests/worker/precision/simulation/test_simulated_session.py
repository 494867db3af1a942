from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.simulation.simulation_session import open_simulation, open_unrounded

pytestmark = pytest.mark.processors

TEXT = """<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (float[N] y) {
    h = Cast<to=10>(x)
    s = Mul(h, h)
    y = Cast<to=1>(s)
}"""


def opened(optimization):
    options = OnnxRuntimeOptions(optimization)
    return lambda path: onnxruntime.open(path, "cpu", options)


@pytest.mark.parametrize("optimization", ["none", "basic", "extended", "all"])
def test_a_simulation_overflows_as_a_device_does(tmp_path, optimization):
    ir.save(ir.from_onnx_text(TEXT), tmp_path / "model.onnx")
    session = open_simulation(tmp_path / "model.onnx", opened(optimization), "float16")
    found = session.run({"x": np.array([300, 2], np.float32)})["y"]
    assert found.tolist() == [np.inf, 4]


def test_without_rounding_nothing_overflows(tmp_path):
    ir.save(ir.from_onnx_text(TEXT), tmp_path / "model.onnx")
    session = open_unrounded(tmp_path / "model.onnx", opened("all"))
    found = session.run({"x": np.array([300, 1 + 2.0**-11], np.float32)})["y"]
    assert found.tolist() == [90000, (1 + 2.0**-11) ** 2]


def opened_without_roundings(path):
    """Stand in for a release of a runtime that optimizes pairs of Casts away: none is known."""
    model = ir.load(path)
    for node in list(model.graph):
        if node.op_type == "Cast":
            ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
    ir.save(model, path)
    return opened("all")(path)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_runtime_that_would_hide_the_roundings_is_refused_by_a_stand_in(tmp_path: Path, dtype):
    ir.save(ir.from_onnx_text(TEXT), tmp_path / "model.onnx")
    with pytest.raises(StageFailedError, match="explicit roundings"):
        open_simulation(tmp_path / "model.onnx", opened_without_roundings, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_this_release_keeps_them(tmp_path: Path, dtype):
    ir.save(ir.from_onnx_text(TEXT), tmp_path / "model.onnx")
    session = open_simulation(tmp_path / "model.onnx", opened("all"), dtype)
    assert session.run({"x": np.array([1 + 2.0**-12], np.float32)})["y"].tolist() == [1]
