"""A graph that is open in onnxruntime for as long as something is measured with it."""

import tempfile
import types
from pathlib import Path
from typing import Self

import onnx_ir as ir

from convkit.precision.reductions import open_session


class TemporarySession:
    """A context manager, which removes the folder of the graph's weights at its end."""

    def __init__(self, model: ir.Model, threads: int | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="convkit-session-")
        path = Path(self._folder.name) / "switched.onnx"
        ir.save(model, path, external_data=f"{path.name}.data")
        self._session = open_session(path, None, threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._folder.cleanup()
