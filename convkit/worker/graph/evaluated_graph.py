"""An ONNX file that onnxruntime refuses, run by onnx's own evaluator: what is right is defined by
the standard, whatever a runtime has kernels for.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.worker.graph.standard_evaluator import standard_evaluator
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

# Bytes. The evaluator computes in numpy, one loop after the other in some operators.
_MOST_BYTES = 64 << 20


class EvaluatedGraph:
    """A file as onnx's evaluator runs it. Raises ModelRefusedError if it is no valid model, or has
    an operator without an implementation there.
    """

    def __init__(self, path: Path) -> None:
        import onnx

        if path.stat().st_size > _MOST_BYTES:
            raise ModelRefusedError(f"{path.name} is too large for onnx's own evaluator")
        try:
            onnx.checker.check_model(str(path), full_check=True)
            self._evaluator = standard_evaluator(str(path))
        except MemoryError:
            raise
        except Exception as error:  # the checker's and the evaluator's share no base class
            raise ModelRefusedError(f"onnx {onnx.__version__}: {error}") from error
        self._release = onnx.__version__

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name; raises RunFailedError with the evaluator's message."""
        try:
            with np.errstate(all="ignore"):
                values = self._evaluator.run(None, dict(feeds))
        except MemoryError:
            raise
        except Exception as error:  # numpy's errors, and the evaluator's own
            raise RunFailedError(f"onnx {self._release}: {error}") from error
        names = self._evaluator.output_names
        return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def evaluated(path: Path, refused: ModelRefusedError) -> EvaluatedGraph:
    """Return a file that onnxruntime `refused`; raises that refusal if the evaluator cannot run it,
    either.
    """
    try:
        return EvaluatedGraph(path)
    except ModelRefusedError as error:
        raise refused from error
