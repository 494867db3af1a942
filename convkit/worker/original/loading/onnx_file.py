"""A third-party ONNX file: there is no torch module to load."""

from typing import NoReturn

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError


def load(source: Source) -> NoReturn:
    """Raise an error: the export stage adopts the file directly
    (`convkit.worker.exporters.adopted_file`).
    """
    raise StageFailedError(
        f"model.onnx: {source.path} is a graph and has no torch module; a target or option that"
        " needs the original module needs model.hub, model.path, model.package, model.config or"
        " model.factory."
    )
