"""The simulation of a built model, opened by a runtime in its place; and the proof that the runtime
keeps it honest.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.models.graph.preparation import UntypedValueError
from convkit.precision.rounding import IR_DTYPES
from convkit.precision.simulation.graph import simulate_file
from convkit.tensors import DType
from convkit.worker.context import StageFailedError
from convkit.worker.sessions import Options, Runtime, RuntimeSession

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
    model: Path, runtime: Runtime, options: Options, dtype: DType
) -> RuntimeSession:
    """Simulate a built model of low precision (see `simulate`) and open that, on the CPU.

    Raises StageFailedError where the runtime would optimise the roundings away, for then nothing
    would be proven.
    """
    with tempfile.TemporaryDirectory(prefix="convkit-simulation-") as folder:
        _prove(Path(folder) / "proof.onnx", runtime, options, dtype)
        simulation = Path(folder) / "simulation.onnx"
        try:
            simulate_file(model, simulation)
        except UntypedValueError as error:
            raise StageFailedError(str(error)) from error
        return runtime.open(simulation, "cpu", options)


def _prove(path: Path, runtime: Runtime, options: Options, dtype: DType) -> None:
    ir.save(ir.from_onnx_text(_ROUNDED.replace("TYPE", str(int(IR_DTYPES[dtype])))), path)
    x = np.array([1 + 2.0**-12], np.float32)  # both types round its square to 1
    found = runtime.open(path, "cpu", options).run({"x": x})["y"]
    if not np.array_equal(found, x):
        raise StageFailedError(
            f"this release of the runtime optimises explicit roundings to {dtype} away, so that"
            " nothing can be said of the target's precision; take another release, or"
            " optimization: none"
        )
