"""A third-party ONNX file: there is no torch module to load."""

from typing import NoReturn

from convkit.worker.context import StageFailedError
from convkit.worker.protocol import Source


def load(source: Source) -> NoReturn:
    """Raise an error: the export stage adopts the file directly
    (`convkit.models.exporters.adopt`).
    """
    raise StageFailedError(
        f"model.onnx: {source.path} is a graph and has no torch module; a target or option that"
        " needs the original module needs model.hub, model.path, model.package, model.config or"
        " model.factory."
    )
