"""ONNX models on disk: one graph file, one file with the weights."""

from collections.abc import Iterator
from pathlib import Path

import onnx_ir

from convkit.worker.context import StageFailedError

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"

# Smaller tensors stay in the graph file, where shape inference can read them.
_INLINE_BYTES = 256
# Runtimes map large tensors by page; small ones only need the alignment of their elements and
# vector registers.
_PAGE = 4096
_LARGE_BYTES = 64 * 1024
_CACHE_LINE = 64


def initializers(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    """Yield every initializer with a tensor: the main graph's, then those of
    subgraphs, in order.
    """
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from (value for value in graph.initializers.values() if value.const_value is not None)


def write_model(model: onnx_ir.Model, folder: Path) -> None:
    """Write `model.onnx`, and its weights to `model.onnx.data` consecutively, sorted by name.

    Tensors are copied to the file one at a time. Afterwards, the model's weights refer to the file.
    """
    weights = [value for value in initializers(model) if value.const_value.nbytes > _INLINE_BYTES]
    # Names are unique only within a graph: a subgraph may repeat one, which then keeps its
    # position.
    weights.sort(key=lambda value: value.name or "")
    if weights:
        with (folder / DATA_FILE).open("wb") as stream:
            offsets = [_append(stream, value.const_value) for value in weights]
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


def _append(stream, tensor: onnx_ir.TensorProtocol) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
    alignment = _PAGE if tensor.nbytes >= _LARGE_BYTES else _CACHE_LINE
    stream.write(b"\0" * (-stream.tell() % alignment))
    offset: int = stream.tell()
    if hasattr(tensor, "tofile"):
        tensor.tofile(stream)
    else:
        stream.write(tensor.tobytes())
    if stream.tell() - offset != tensor.nbytes:
        raise StageFailedError(
            f"weight {tensor.name!r}: {stream.tell() - offset} bytes written of {tensor.nbytes}"
        )
    return offset
