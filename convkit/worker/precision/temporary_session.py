"""A graph that is open in onnxruntime for as long as something is measured with it.

Its products of whole numbers are exact on every processor.
"""

import contextlib
import tempfile
from pathlib import Path

import onnx_ir as ir

from convkit.worker.graph.graph_files import save_model
from convkit.worker.graph.integer_products.product_rewriting import make_products_exact
from convkit.worker.precision.tensor_statistics import open_session


class TemporarySession(contextlib.ExitStack):
    """A context manager, which removes the folder of the graph's weights at its end."""

    def __init__(self, model: ir.Model, threads: int | None) -> None:
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="convkit-session-"))
        path = Path(folder) / "switched.onnx"
        make_products_exact(model)
        save_model(model, path)
        self._session = open_session(path, None, threads)
