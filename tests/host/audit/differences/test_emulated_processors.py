"""Real figures of two processors, one of them emulated: what the bounds of rounding rest on."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from other_processors import EMULATOR

from convkit.host.audit.differences.across_processors import output_relation
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import TensorMetrics

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(EMULATOR is None, reason="needs qemu-x86_64 (Debian: qemu-user)"),
]

# Each model's error against numpy in float64, on this process's processor. `drifted` has a weight
# that is off by a thousandth. The integer products saturate in pairs.
CODE = """
import json, sys
import numpy as np, onnx, onnxruntime
from convkit.protocol.json_codec import encode
from convkit.worker.metrics.tensor_metrics import compare

random = np.random.default_rng(0)
x = random.standard_normal((8, 256)).astype(np.float32)
a, b = (random.standard_normal((256, 256)).astype(np.float32) / 16 for _ in range(2))
left = random.integers(200, 256, (8, 64), dtype=np.uint8)
right = random.integers(-127, 128, (64, 32), dtype=np.int8)
right[:, ::2] = 127
HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
FLOATS = HEAD + (
    "(float[8,256] x, float[256,256] a, float[256,256] b) => (float[8,256] y)"
    " { h = MatMul (x, a) r = Relu (h) m = MatMul (r, b) y = Softmax (m) }"
)
INTEGERS = HEAD + (
    "(uint8[8,64] x, int8[64,32] a) => (float[8,32] y)"
    " { m = MatMulInteger (x, a) y = Cast <to = 1> (m) }"
)

def run(text, **feeds):
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    model = onnx.parser.parse_model(text).SerializeToString()
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model, settings, providers=providers).run(None, feeds)[0]

h = np.maximum(x.astype(np.float64) @ a, 0) @ b
e = np.exp(h - h.max(-1, keepdims=True))
expected = (e / e.sum(-1, keepdims=True)).astype(np.float32)
off = b.copy()
off[3, 5] += 1e-3 * np.abs(b).max()
product = (left.astype(np.int64) @ right).astype(np.float32)
found = {
    "floats": compare("y", expected, run(FLOATS, x=x, a=a, b=b)),
    "drifted": compare("y", expected, run(FLOATS, x=x, a=a, b=off)),
    "integers": compare("y", product, run(INTEGERS, x=left, a=right)),
}
print(json.dumps({name: encode(each) for name, each in found.items()}))
"""


def figures(*prefix: str) -> dict[str, TensorMetrics]:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", CODE],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {name: decode(TensorMetrics, each) for name, each in found.items()}


@pytest.fixture(scope="module")
def by_processor() -> dict[str, dict[str, TensorMetrics]]:
    models = {name: ("qemu-x86_64", "-cpu", name) for name in ("Haswell", "Nehalem")}
    return {"here": figures()} | {name: figures(*prefix) for name, prefix in models.items()}


@pytest.mark.parametrize("pair", [("here", "Haswell"), ("Haswell", "Nehalem")])
def test_floats_are_equal_within_rounding_and_drift_is_not(
    by_processor: dict[str, dict[str, TensorMetrics]], pair: tuple[str, str]
) -> None:
    one, other = (by_processor[name] for name in pair)
    assert output_relation(one["floats"], other["floats"], whole=False) in (
        "equal",
        "WITHIN_ROUNDING",
    )
    assert output_relation(one["floats"], other["drifted"], whole=False) == "different"


def test_integer_kernels_differ_by_far_more_than_rounding(
    by_processor: dict[str, dict[str, TensorMetrics]],
) -> None:
    pairs, exact = by_processor["Haswell"]["integers"], by_processor["Nehalem"]["integers"]
    assert exact.max_abs == 0.0
    assert pairs.nrmse > 0.01
    assert output_relation(exact, pairs, whole=False) == "different"
