"""onnx's own evaluator, with an operator as the standard defines it that it has in part only.

Its GatherElements takes indices of the data's size along every other axis alone, no more than 32
elements along its own, and wraps an index that is out of range. The standard allows fewer indices
and any number of elements, and makes such an index an error.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx
    from onnx.reference import ReferenceEvaluator


def standard_evaluator(model: "onnx.ModelProto | str") -> "ReferenceEvaluator":
    """Return an evaluator of a model or a file. Raises what onnx's does, which shares no base
    class, for an operator that it does not have.
    """
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):
        op_domain = ""

        def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
            return (_gathered(data, indices, axis),)

    return ReferenceEvaluator(model, new_ops=[GatherElements])


def _gathered(data: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    size, axis = data.shape[axis], axis % data.ndim
    if indices.size and not -size <= indices.min() <= indices.max() < size:
        raise ValueError(f"GatherElements: an index is out of range for {size} elements")
    part = tuple(
        slice(None) if place == axis else slice(length)
        for place, length in enumerate(indices.shape)
    )
    return np.take_along_axis(data[part], indices.astype(np.int64), axis)
