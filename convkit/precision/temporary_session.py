"""A graph that is open in onnxruntime for as long as something is measured with it, in the
arithmetic that simulations define: what is decided by it is the same on every processor.
"""

import contextlib
import tempfile
from pathlib import Path

import onnx_ir as ir

from convkit.precision.reductions import open_session
from convkit.precision.simulation.arithmetic import with_defined_arithmetic


class TemporarySession(contextlib.ExitStack):
    """A context manager, which removes the folder of the graph's weights at its end."""

    def __init__(self, model: ir.Model, threads: int | None) -> None:
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="convkit-session-"))
        path = Path(folder) / "switched.onnx"
        ir.save(with_defined_arithmetic(model), path, external_data=f"{path.name}.data")
        self._session = open_session(path, None, threads)
