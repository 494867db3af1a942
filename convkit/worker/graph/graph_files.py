"""ONNX models on disk: one graph file, one file with the weights."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx_ir

from convkit.worker.graph.duplicate_weights import as_bytes
from convkit.worker.job_context import StageFailedError
from convkit.worker.process.mapped_pages import PageBudget

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"

# Smaller tensors stay in the graph file, where shape inference can read them. onnxruntime 1.31
# loads no graph whose sizes, such as those that Split splits by, are elsewhere (their issue 26261):
# 2048 of them stay.
_INLINE_BYTES, _INLINE_SIZES = 256, 1 << 14
# Runtimes map large tensors by page; small ones only need the alignment of their elements and
# vector registers.
_PAGE = 4096
_LARGE_BYTES = 64 * 1024
_CACHE_LINE = 64
# A transposed matrix is written in blocks of this size, copied by tiles of this width: 18 times as
# fast as numpy's tofile, and 3 times as fast as one copy.
_BLOCK_BYTES = 8 * 2**20
_TILE_COLUMNS = 64


def initializers(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    """Yield every initializer with a tensor: the main graph's, then those of
    subgraphs, in order.
    """
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from (value for value in graph.initializers.values() if value.const_value is not None)


def write_model(model: onnx_ir.Model, folder: Path) -> None:
    """Write `model.onnx`, and its weights to `model.onnx.data` consecutively, sorted by name.

    Tensors are copied to the file one at a time. Afterwards, the model's weights refer to the file.
    Texts stay in the graph file: ONNX stores no strings outside it.
    """
    weights = [
        value
        for value in initializers(model)
        if value.const_value.dtype is not onnx_ir.DataType.STRING
        and value.const_value.nbytes > _inline_bytes(value.const_value.dtype)
    ]
    # Names are unique only within a graph: a subgraph may repeat one, which then keeps its
    # position.
    weights.sort(key=lambda value: value.name or "")
    if weights:
        pages = PageBudget()
        with (folder / DATA_FILE).open("wb") as stream:
            offsets = [_append(stream, value.const_value, pages) for value in weights]
        for value, offset in zip(weights, offsets, strict=True):
            tensor = value.const_value
            value.const_value = onnx_ir.ExternalTensor(
                DATA_FILE,
                offset,
                tensor.nbytes,
                tensor.dtype,
                shape=tensor.shape,
                name=value.name,
                base_dir=folder,
            )
    onnx_ir.save(model, folder / MODEL_FILE)


def save_model(model: onnx_ir.Model, path: Path) -> None:
    """Write a graph for a session that reads it once: large tensors next to it, in `NAME.data`."""
    data = f"{path.name}.data"
    onnx_ir.save(model, path, external_data=data, size_threshold_bytes=_INLINE_SIZES)


def _inline_bytes(dtype: onnx_ir.DataType) -> int:
    return _INLINE_SIZES if dtype is onnx_ir.DataType.INT64 else _INLINE_BYTES


def _append(stream: BinaryIO, tensor: onnx_ir.TensorProtocol, pages: PageBudget) -> int:
    pages.enforce()  # of the tensors before this one
    alignment = _PAGE if tensor.nbytes >= _LARGE_BYTES else _CACHE_LINE
    stream.write(b"\0" * (-stream.tell() % alignment))
    offset = stream.tell()
    if tensor.dtype.bitwidth >= 8 and sys.byteorder == "little":
        stream.writelines(_blocks(np.asarray(tensor.numpy())))
    else:  # several elements per byte
        stream.write(tensor.tobytes())
    if stream.tell() - offset != tensor.nbytes:
        raise StageFailedError(
            f"weight {tensor.name!r}: {stream.tell() - offset} bytes written of {tensor.nbytes}"
        )
    return offset


def _blocks(array: np.ndarray) -> Iterator[memoryview]:
    """Yield the bytes of an array's elements in order: all at once if they are contiguous.

    numpy writes others element by element. Of a transposed matrix, which exporters leave as a view
    of the original's weight, each tile of a block fits the processor's caches.
    """
    if array.flags.c_contiguous:
        yield as_bytes(array).reshape(-1).data
        return
    rows = max(1, _BLOCK_BYTES * len(array) // array.nbytes)
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        block = np.empty(part.shape, part.dtype)
        for column in range(0, part.shape[-1], _TILE_COLUMNS):
            tile = slice(column, column + _TILE_COLUMNS)
            block[..., tile] = part[..., tile]
        yield as_bytes(block).reshape(-1).data
