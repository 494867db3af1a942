"""Opens the simulation of a built model with a runtime, after proving that the runtime preserves
the rounding, and the same model without rounding.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.typed_graph import UntypedValueError
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.constant_rounding import IR_DTYPES
from convkit.worker.precision.simulation.simulated_graph import (
    define_file,
    simulate_file,
    widen_file,
)
from convkit.worker.runtime_interface.sessions import RuntimeSession

_ROUNDED = """
<ir_version: 8, opset_import: ["": 17]>
proof (float[N] x) => (float[N] y) {
    exact = Mul(x, x)
    low = Cast<to: int = TYPE>(exact)
    wide = Cast<to: int = 1>(low)
    y = Mul(wide, x)
}
"""


def open_simulation(
    model: Path, opened: Callable[[Path], RuntimeSession], dtype: DType
) -> RuntimeSession:
    """Simulate a built low-precision model (see `simulate`) and open it with `opened`, which runs a
    graph on the CPU, as it is written: optimizations may depend on the processor.

    Raises StageFailedError if the runtime would optimize the rounding away, since nothing would
    then be proven.
    """
    with tempfile.TemporaryDirectory(prefix="convkit-proof-") as folder:
        _prove(Path(folder) / "proof.onnx", opened, dtype)
    return _open_rewritten(model, simulate_file, opened)


def open_defined(model: Path, opened: Callable[[Path], RuntimeSession]) -> RuntimeSession:
    """Open a built model of float32 or whole numbers, in the arithmetic that simulations define."""
    return _open_rewritten(model, define_file, opened)


def open_unrounded(model: Path, opened: Callable[[Path], RuntimeSession]) -> RuntimeSession:
    """Open a built low-precision model in float32, without any rounding of values (see `widen`).

    Raises StageFailedError if the type of a value in it is unknown.
    """
    return _open_rewritten(model, widen_file, opened)


def _open_rewritten(
    model: Path, rewrite: Callable[[Path, Path], None], opened: Callable[[Path], RuntimeSession]
) -> RuntimeSession:
    with tempfile.TemporaryDirectory(prefix="convkit-simulation-") as folder:
        rewritten = Path(folder) / "simulation.onnx"
        try:
            rewrite(model, rewritten)
        except UntypedValueError as error:
            raise StageFailedError(str(error)) from error
        return opened(rewritten)


def _prove(path: Path, opened: Callable[[Path], RuntimeSession], dtype: DType) -> None:
    ir.save(ir.from_onnx_text(_ROUNDED.replace("TYPE", str(int(IR_DTYPES[dtype])))), path)
    x = np.array([1 + 2.0**-12], np.float32)  # both types round its square to 1
    found = opened(path).run({"x": x})["y"]
    if not np.array_equal(found, x):
        raise StageFailedError(
            f"this release of the runtime optimizes explicit roundings to {dtype} away, so the"
            " target's precision cannot be simulated; use a different release, or optimization:"
            " none"
        )
