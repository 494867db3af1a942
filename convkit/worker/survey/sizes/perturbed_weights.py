"""A file's session with weights that are a little off, as another order of the same sums is."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.worker.cases.values.sampled_values import generator
from convkit.worker.graph.graph_session import GraphSession, open_model
from convkit.worker.runtime_interface.sessions import ModelRefusedError

Values = Mapping[str, np.ndarray]
# Bytes of weights that are moved: a copy of them is kept meanwhile.
_MOST_BYTES = 1 << 30


def moved(name: str, values: np.ndarray, case: str, most: int) -> np.ndarray:
    """Return numbers moved by up to so many units in the last place, up or down at random; others
    as they are.
    """
    if values.dtype.kind != "f":
        return values
    units = generator(0, case, name, "moved").integers(-most, most + 1, size=values.shape)
    return np.asarray(values * (1 + units * np.finfo(values.dtype).eps), dtype=values.dtype)


def run_with_moved_weights(path: Path, graph: ir.Graph) -> Callable[[Values], Values] | None:
    """Return a run of a file whose float32 weights are moved by a unit in the last place; raises
    RunFailedError when called. None if there are no such weights, too many, or onnxruntime does not
    replace them.
    """
    import onnxruntime

    weights = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT
    }
    if not 0 < sum(weight.nbytes for weight in weights.values()) <= _MOST_BYTES:
        return None
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(moved(name, weight.numpy(), "weights", 1))
        for name, weight in weights.items()
    }
    try:
        session = GraphSession(open_model(str(path), weights=values))
    except (ModelRefusedError, RuntimeError):
        return None

    def run(feeds: Values, _kept: object = values) -> Values:
        return session.run(feeds)

    return run
