"""Weights of which a file stores only the elements that are not zero (`sparse_initializer`).
onnx-ir drops them, and few runtimes know them, so graphs get them in full.
"""

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper


def sparse_as_dense(model: onnx.ModelProto, folder: Path) -> None:
    """Turn the sparse weights of a main graph into ordinary ones, in place; `folder` has the
    external data.
    """
    graph = model.graph
    graph.initializer.extend(_dense(tensor, folder) for tensor in graph.sparse_initializer)
    del graph.sparse_initializer[:]


def _dense(sparse: onnx.SparseTensorProto, folder: Path) -> onnx.TensorProto:
    """Return a tensor of shape `dims` with the values at their indices: of shape [values], into the
    flat tensor, or of shape [values, rank].
    """
    for tensor in (sparse.values, sparse.indices):
        if external_data_helper.uses_external_data(tensor):
            external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    values, indices = (
        np.asarray(numpy_helper.to_array(tensor)) for tensor in (sparse.values, sparse.indices)
    )
    shape = tuple(sparse.dims)
    flat = np.zeros(math.prod(shape), values.dtype)
    places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
    flat[places] = values
    return numpy_helper.from_array(flat.reshape(shape), sparse.values.name)
