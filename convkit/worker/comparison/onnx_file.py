"""An ONNX file opened for comparison: the graph in memory, weights mapped from files."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir

from convkit.worker.comparison.weights import Weight
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.job_context import StageFailedError

# Values of these types may differ slightly. All others are indices, masks or packed, and compared
# exactly.
_FLOATS = frozenset(
    onnx_ir.DataType[name]
    for name in (
        "FLOAT",
        "FLOAT16",
        "DOUBLE",
        "BFLOAT16",
        "COMPLEX64",
        "COMPLEX128",
        "FLOAT8E4M3FN",
        "FLOAT8E4M3FNUZ",
        "FLOAT8E5M2",
        "FLOAT8E5M2FNUZ",
    )
)


@dataclasses.dataclass(frozen=True)
class OnnxFile:
    """A model without its external weights. `maps` are the opened weight files, by location."""

    path: Path
    model: onnx.ModelProto
    maps: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def weight(self, tensor: onnx.TensorProto) -> Weight:
        """Return a tensor of any type but string; raises StageFailedError if its bytes are
        missing.
        """
        try:
            kind = onnx_ir.DataType(tensor.data_type)
        except ValueError as error:
            raise StageFailedError(
                f"{self.path.name}: {tensor.name!r} has no known element type ({error})"
            ) from error
        shape = tuple(tensor.dims)
        size = math.ceil(math.prod(shape) * kind.bitwidth / 8)
        external = tensor.data_location == onnx.TensorProto.EXTERNAL
        content = self._external(tensor, size) if external else _inline(tensor)
        if len(content) != size:
            message = f"{tensor.name!r} has {len(content)} bytes, and {size} by its shape and type"
            raise StageFailedError(f"{self.path.name}: {message}")
        return Weight(
            type_name(kind),
            shape,
            content,
            kind.bitwidth,
            kind.numpy() if kind in _FLOATS else None,
        )

    def _external(self, tensor: onnx.TensorProto, size: int) -> np.ndarray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        content = self.maps.get(location)
        if content is None:
            content = self.maps[location] = _mapped(self.path, location)
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
        except ValueError as error:
            raise StageFailedError(
                f"{self.path.name}: {tensor.name!r} has no readable location ({error})"
            ) from error
        if offset < 0 or length < 0 or offset + length > len(content):
            message = (
                f"{tensor.name!r} ends at byte {offset + length} of {location!r}, which has"
                f" {len(content)}"
            )
            raise StageFailedError(f"{self.path.name}: {message}")
        return content[offset : offset + length]


def open_onnx(path: Path) -> OnnxFile:
    """Open a file; raises StageFailedError if it is not an ONNX file."""
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's own error, which lives in a private module
        raise StageFailedError(f"{path.name} is not a readable ONNX file: {error}") from error
    if not model.HasField("graph"):
        raise StageFailedError(f"{path.name} is not an ONNX file: it has no graph")
    return OnnxFile(path, model)


def weight_files(path: Path) -> set[str]:
    """Return the locations of a model's external weights; empty if it cannot be read."""
    try:
        model = open_onnx(path).model
    except StageFailedError:
        return set()  # the comparison reports it
    return {
        entry.value
        for tensor in _tensors(model)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def type_name(kind: onnx_ir.DataType) -> str:
    """Return an element type's name, as in contracts if possible, otherwise in lower case."""
    return contract_dtype(kind) or str(kind.name).lower()


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for graph in (attribute.g, *attribute.graphs):
                yield from _graph_tensors(graph)


def _inline(tensor: onnx.TensorProto) -> np.ndarray:
    if tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, np.uint8)
    return np.frombuffer(onnx_ir.serde.TensorProtoTensor(tensor).tobytes(), np.uint8)


def _mapped(model: Path, location: str) -> np.ndarray:
    """Map a weight file, which the format requires to be in the model's folder."""
    file = model.parent / location
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise StageFailedError(
            f"{model.name}: its weights file {location!r} is outside the model's folder"
        )
    if file.exists() and not file.resolve().is_relative_to(model.parent.resolve()):
        raise StageFailedError(
            f"{model.name}: the weights' file {location!r} leads outside the model's folder"
        )
    if not file.is_file():
        raise StageFailedError(
            f"{model.name}: the weights' file {location!r} is missing from the model's folder"
        )
    # numpy cannot map empty files.
    return np.memmap(file, np.uint8, mode="r") if file.stat().st_size else np.zeros(0, np.uint8)
