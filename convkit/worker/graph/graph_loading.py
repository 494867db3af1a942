"""Loads a model whose weights are in the store: its folders contain hard links, which onnx-ir
rejects as an attack.
"""

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import external_data_helper, numpy_helper

from convkit.worker.job_context import StageFailedError


def load_model(path: Path) -> ir.Model:
    """Load a model; each external weight is mapped whenever it is read, and unmapped when the array
    is released.

    Raises StageFailedError for weights outside the model's folder.
    """
    model = ir.load(path)
    map_weights(model, path.parent)
    return model


def map_weights(model: ir.Model, folder: Path) -> None:
    """Let a model read its external weights from a folder, even through links; raises
    StageFailedError.
    """
    folder = folder.resolve()
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _mapped(value.const_value, folder)


def _mapped(tensor: ir.ExternalTensor, folder: Path) -> ir.LazyTensor:
    file = (folder / tensor.location).resolve()
    if not file.is_relative_to(folder):
        raise StageFailedError(
            f"the weight {tensor.name!r} lies outside the model's folder, at {tensor.location}"
        )
    offset, length = tensor.offset or 0, tensor.nbytes
    shape = tuple(tensor.shape.numpy())

    def read() -> ir.TensorProtocol:
        if tensor.size == 0:
            return ir.Tensor(
                np.empty(shape, tensor.dtype.numpy()), dtype=tensor.dtype, name=tensor.name
            )
        raw = np.memmap(file, np.uint8, "r", offset, length)
        if tensor.dtype.bitwidth < 8:  # several elements per byte
            return ir.serde.TensorProtoTensor(
                onnx.TensorProto(data_type=int(tensor.dtype), dims=shape, raw_data=raw.tobytes())
            )
        return ir.Tensor(
            raw.view(tensor.dtype.numpy()).reshape(shape), dtype=tensor.dtype, name=tensor.name
        )

    return ir.LazyTensor(read, dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)


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
