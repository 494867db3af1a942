"""Detects weights that a file stores twice: identical, or one as the other's transpose."""

import hashlib
from collections import defaultdict

import numpy as np
import onnx_ir

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.graph.contents import as_bytes, sampled_places

# Smaller tensors may be equal by chance, and cost nothing.
_SMALL_BYTES = 1024
# Report from this size, or this share of all weights.
_MUCH_BYTES = 2**20
_MUCH_SHARE = 0.1

_Key = tuple[object, ...]


def duplicate_weights(model: onnx_ir.Model) -> list[Finding]:
    """Return E209 if equal initializers of the main graph waste more than 1 MiB or a tenth of the
    weights' bytes.

    A matrix counts as a duplicate of its transpose: constant folding produces that from a tied
    output layer. Tensors with a single repeated value (fresh norms, zero biases) do not count,
    since they were never tied.
    """
    tensors = {
        str(name): value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype is not onnx_ir.DataType.STRING
        and value.const_value.nbytes >= _SMALL_BYTES
    }
    groups = _equal(tensors)
    wasted = sum(tensors[name].nbytes for names in groups for name in names[1:])
    total = sum(tensor.nbytes for tensor in tensors.values())
    if wasted < _MUCH_BYTES and not (total and wasted / total > _MUCH_SHARE):
        return []
    groups.sort(key=lambda names: -tensors[names[0]].nbytes * (len(names) - 1))
    largest = groups[0]
    return [
        Finding(
            "E209",
            f"{wasted:,} of {total:,} bytes of weights are duplicates; the largest are"
            f" {' = '.join(map(repr, largest))}",
            Place(tensor=largest[-1]),
            {
                "wasted_bytes": wasted,
                "weights_bytes": total,
                "equal": [list(names) for names in groups[:20]],
            },
            Remedy(
                "Export with convkit, which stores tied weights once, or make the file's exporter"
                " share them."
            ),
        )
    ]


def _equal(tensors: dict[str, onnx_ir.TensorProtocol]) -> list[list[str]]:
    """Return groups of names of equal tensors; tensors with a unique shape are not read, and those
    with a unique sample not whole.
    """
    by_shape: dict[_Key, list[str]] = defaultdict(list)
    for name, tensor in tensors.items():
        shape = tuple(int(size) for size in tensor.shape)
        by_shape[tensor.dtype, tuple(sorted(shape)) if len(shape) == 2 else shape].append(name)
    by_sample: dict[_Key, list[str]] = defaultdict(list)
    for kind, names in by_shape.items():
        for name in names if len(names) > 1 else ():
            by_sample[kind, _sample(tensors[name].numpy())].append(name)
    by_content: dict[bytes, list[str]] = defaultdict(list)
    for names in by_sample.values():
        for name in names if len(names) > 1 else ():
            array = np.asarray(tensors[name].numpy())
            if array.size and not (array == array.flat[0]).all():
                by_content[_digest(array)].append(name)
    return [names for names in by_content.values() if len(names) > 1]


def _sample(array: np.ndarray) -> bytes:
    """Return a few elements of an array, the same for a matrix and its transpose."""
    return min(as_bytes(way[sampled_places(way.shape)]).tobytes() for way in _ways(array))


def _digest(array: np.ndarray) -> bytes:
    """Return a digest of an array's values that is the same for a matrix and its transpose."""
    return min(_digest_one(way) for way in _ways(array))


def _ways(array: np.ndarray) -> list[np.ndarray]:
    """Return an array in the forms that identify it and its transpose: both, if it is square."""
    if array.ndim != 2 or array.shape[0] < array.shape[1]:
        return [array]
    return [array.T] if array.shape[0] > array.shape[1] else [array, array.T]


def _digest_one(array: np.ndarray) -> bytes:
    digest = hashlib.sha256(repr((str(array.dtype), array.shape)).encode())
    digest.update(as_bytes(array).reshape(-1).data)
    return digest.digest()
