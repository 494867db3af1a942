"""Denormal numbers are kept, whoever changed the mode of a thread before."""

import math
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import pytest
import torch

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.worker.graph.graph_session import GraphSession, open_model
from convkit.worker.process import denormal_mode
from convkit.worker.process.denormal_mode import flushed_denormals, keep_denormals, watching

pytestmark = pytest.mark.skipif(
    denormal_mode._access() is None, reason="this system's mode cannot be set"
)

SMALL = np.full(64, 1e-20, np.float32)
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[64] x) => (float[64] y) <float up = {1e30}> { s = Mul (x, x) y = Mul (s, up) }
"""


def keeps() -> bool:
    return bool((SMALL * SMALL).all())


def model() -> bytes:
    return onnx.parser.parse_model(GRAPH).SerializeToString()


def test_the_smallest_normal_number_is_float32s() -> None:
    assert np.finfo(np.float32).tiny == SMALLEST_NORMAL
    assert math.ulp(0.0) < SMALLEST_NORMAL


def test_denormals_are_flushed_in_a_block_and_kept_after_it() -> None:
    assert keeps()
    with flushed_denormals():
        assert not keeps()
    assert keeps()
    with pytest.raises(ValueError, match="an error"), flushed_denormals():
        raise ValueError("an error")
    assert keeps()


def test_the_mode_is_the_threads_own() -> None:
    found = []

    def own() -> None:
        torch.set_flush_denormal(True)
        found.append(keeps())

    with flushed_denormals():
        inherits = threading.Thread(target=lambda: found.append(keeps()))
        inherits.start()
        inherits.join()
    other = threading.Thread(target=own)
    other.start()
    other.join()
    assert found == [False, False]
    assert keeps()


def test_a_session_keeps_denormals_in_a_thread_that_flushes_them() -> None:
    session = GraphSession(open_model(model()))
    torch.set_flush_denormal(True)
    try:
        assert session.run({"x": SMALL})["y"].all()
    finally:
        keep_denormals()


def test_a_first_session_with_denormals_as_zero_does_not_reach_ours() -> None:
    """onnxruntime sets the mode of the thread that opens a process's first session, for good."""
    code = """
import sys
import numpy as np, onnxruntime
from convkit.worker.graph.graph_session import GraphSession, open_model
model = sys.stdin.buffer.read()
x = np.full(64, 1e-20, np.float32)
settings = onnxruntime.SessionOptions()
settings.add_session_config_entry("session.set_denormal_as_zero", "1")
onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
assert not (x * x).any()
assert GraphSession(open_model(model)).run({"x": x})["y"].all()
"""
    ended = subprocess.run([sys.executable, "-c", code], input=model(), check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize(
    ("compute", "met"),
    [
        (lambda: SMALL * SMALL, True),
        (lambda: np.full(8, 1e-39, np.float32) + np.float32(1), True),
        (lambda: torch.exp(torch.full((8,), -100.0)), True),
        (lambda: SMALL * np.float32(3), False),
        (lambda: torch.softmax(torch.tensor([0.0, -1e9, -math.inf]), -1), False),
        (lambda: torch.nn.functional.gelu(torch.linspace(-9, 9, 64)), False),
    ],
)
def test_denormals_are_seen(compute, met: bool) -> None:
    with watching() as seen:
        compute()
    assert seen.found is met


def test_keeping_and_watching_take_microseconds() -> None:
    started = time.perf_counter()
    for _ in range(1000):
        keep_denormals()
        with watching():
            pass
    assert time.perf_counter() - started < 1.0
