"""The runtimes that are built from a graph, by the name a recipe calls them. A test holds these to
the targets.
"""

from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.worker.context import StageFailedError
from convkit.worker.nearest import suggestion
from convkit.worker.sessions import Runtime

RUNTIMES: dict[str, Runtime] = {"onnxruntime": onnxruntime}


def runtime_named(name: str) -> Runtime:
    """Return a runtime; raises StageFailedError for an unknown name."""
    if name not in RUNTIMES:
        known = ", ".join(RUNTIMES)
        raise StageFailedError(
            f"there is no runtime {name!r}{suggestion(name, RUNTIMES)} Known: {known}"
        )
    return RUNTIMES[name]
