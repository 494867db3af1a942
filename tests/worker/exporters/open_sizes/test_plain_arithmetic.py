"""Formulas of open sizes in exported graphs, as onnxruntime computes them, against Python's."""

import math
from collections.abc import Callable

import numpy as np
from tiny_models import AXES, X, export_factory, module, run_onnx, tensor

from convkit.protocol.contract import Contract

# Sizes are 1 to 16 here.
FORMULAS = [
    "-(-n // 7)",
    "(n - 9) // 4",
    "(n - 9) >> 1",
    "n >> 2",
    "n << 3",
    "n & 7",
    "(-n) % 8",
    "n % 2.5",
    "round(n / 2)",
    "round((n - 9) / 2)",
    "round(n / 3, 1)",
    "math.trunc((n - 9) / 2)",
]


def test_a_graph_computes_sizes_as_python_does(tmp_path):
    values = ", ".join(f"torch.full((1,), 1.0) * ({each})" for each in FORMULAS)
    code = "import math\n" + module(f"n = x.shape[1]; return x * 1, torch.cat([{values}])")
    contract = Contract(
        (X,), (tensor("y", "batch", "sequence", 4), tensor("sizes", len(FORMULAS))), AXES
    )
    _, findings, out = export_factory(tmp_path, code, contract)
    assert findings == []
    formulas: list[Callable[[int], float]] = [
        eval(f"lambda n: {each}", {"math": math, "round": round}) for each in FORMULAS
    ]
    for size in (1, 2, 5, 9, 16):
        _, found = run_onnx(out, {"x": np.ones((1, size, 4), np.float32)})
        expected = [formula(size) for formula in formulas]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
