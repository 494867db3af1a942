"""The device here is onnxruntime's CPU, which computes float16 in float32: it must be told from the
simulation.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from convkit.protocol.contract import Contract
from convkit.runtimes.onnxruntime import session as runtime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.cases.values.padding_masks import padding_positions
from convkit.worker.metrics.device_comparison import compare_with_simulation
from convkit.worker.precision.simulation.simulation_session import open_simulation
from convkit.worker.runtime_interface.sessions import RuntimeSession

NO_SETS = Contract((), (), ())
OPTIONS = OnnxRuntimeOptions()
HIDDEN = """
<ir_version: 8, opset_import: ["": 17]>
net (float[N] x) => (float[N] y) {
    low = Cast<to: int = 10>(x)
    square = Mul(low, low)
    thousandth = Constant<value: tensor = float {0.001}>()
    scale = Cast<to: int = 10>(thousandth)
    small = Mul(square, scale)
    y = Cast<to: int = 1>(small)
}
"""


@pytest.fixture
def sessions(tmp_path: Path) -> tuple[RuntimeSession, RuntimeSession]:
    path = tmp_path / "model.onnx"
    ir.save(ir.from_onnx_text(HIDDEN), path)
    return runtime.open(path, "cpu", OPTIONS), open_simulation(
        path, lambda each: runtime.open(each, "cpu", OPTIONS), "float16"
    )


def compare(sessions: tuple[RuntimeSession, RuntimeSession], x: list[float]):
    feeds = {"case": {"x": np.array(x, np.float32)}}
    expected = {"case": {"y": np.square(np.array(x, np.float32)) * 1e-3}}
    (pair,) = compare_with_simulation(
        NO_SETS,
        *sessions,
        ["case"],
        feeds.__getitem__,
        expected.__getitem__,
        lambda given, _output: padding_positions(given, None, 0),
    )
    return pair


def test_both_are_measured_where_they_agree(
    sessions: tuple[RuntimeSession, RuntimeSession],
) -> None:
    pair = compare(sessions, [1.0, 2.0, 3.0])
    assert 0 < pair.simulation.outputs[0].max_abs < 1e-5  # 0.001 rounded
    assert pair.agreement.outputs[0].max_abs < 1e-5


def test_an_overflow_that_the_device_hides_shows_in_both_figures(
    sessions: tuple[RuntimeSession, RuntimeSession],
) -> None:
    pair = compare(sessions, [1.0, 300.0])
    assert pair.simulation.outputs[0].inf_mismatched == 1
    assert pair.agreement.outputs[0].inf_mismatched == 1


def test_a_case_that_fails_on_either_is_passed_over(
    sessions: tuple[RuntimeSession, RuntimeSession],
) -> None:
    found = compare_with_simulation(
        NO_SETS,
        *sessions,
        ["case"],
        lambda _case: {"x": np.array([1], np.int64)},
        lambda _case: {},
        lambda *_: None,
    )
    assert found == ()
