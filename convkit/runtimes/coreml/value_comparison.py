"""Values in an ML program: weights, wherever they are stored, and texts for all others."""

import hashlib
import math
import struct
from typing import Any

import numpy as np

from convkit.protocol.comparison.difference_listing import message_text
from convkit.worker.comparison.weights import Weight
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_files import ProgramPackage

# A record of MILBlob's storage format (see `worker/mil/weights_file.py`): sentinel, element type,
# size, offset of the data.
_RECORD = struct.Struct("<IIQQ")
_SENTINEL = 0xDEADBEEF
_LONGEST = 1000


class ProgramWeights:
    """The weights of one package; its files are mapped on first access."""

    def __init__(self, package: ProgramPackage) -> None:
        self._package = package
        self._maps: dict[str, np.ndarray] = {}

    def weight(self, value: Any) -> Weight | None:  # noqa: ANN401 - a protocol buffer
        """Return a tensor's weight; None for values stored in the program that are not numeric
        tensors.

        Values stored in a file are always weights; as bytes, if their size does not match their
        type. Raises StageFailedError if a file is damaged.
        """
        from coremltools.proto import MIL_pb2

        tensor = value.type.tensorType
        kind = MIL_pb2.DataType.Name(tensor.dataType).lower()
        number, bits = _layout(kind)
        shape = tuple(dimension.constant.size for dimension in tensor.dimensions)
        in_file = value.WhichOneof("value") == "blobFileValue"
        content = (
            self._record(value.blobFileValue) if in_file else _inline(value.immediateValue, kind)
        )
        if content is None:
            return None
        if bits is not None and len(content) == math.ceil(math.prod(shape) * bits / 8):
            return Weight(kind, shape, content, bits, number)
        return Weight("bytes", (len(content),), content, 8) if in_file else None

    def _record(self, place: Any) -> np.ndarray:  # noqa: ANN401
        name = place.fileName.split("/")[-1]
        content = self._maps.get(name)
        file = self._package.weights / name
        if content is None:
            if not file.is_file() or not file.stat().st_size:
                raise StageFailedError(
                    f"{file.name}: the weights are missing: an incomplete copy. Convert it again."
                )
            content = self._maps[name] = np.memmap(file, np.uint8, mode="r")
        if place.offset + _RECORD.size <= len(content):
            sentinel, _, length, start = _RECORD.unpack(
                content[place.offset : place.offset + _RECORD.size].tobytes()
            )
            if sentinel == _SENTINEL and start + length <= len(content):
                return content[start : start + length]
        raise StageFailedError(
            f"{file.name}: damaged or truncated at byte {place.offset:,}. Convert it again."
        )


def value_text(value: Any) -> str:  # noqa: ANN401
    """Format a value's content as one line; distinct contents have distinct lines."""
    copy = type(value)()
    copy.CopyFrom(value)
    copy.ClearField("docString")
    text = message_text(
        copy.immediateValue if copy.WhichOneof("value") == "immediateValue" else copy
    )
    if len(text) <= _LONGEST:
        return text
    return f"sha256 {hashlib.sha256(copy.SerializeToString(deterministic=True)).hexdigest()}"


def _layout(kind: str) -> tuple[np.dtype | None, int | None]:
    """Return the numpy type of floats and the bits per element; no bits for types that are not
    numeric.
    """
    if kind in ("float16", "float32", "float64"):
        number = np.dtype(kind)
        return number, number.itemsize * 8
    digits = kind.removeprefix("uint").removeprefix("int")
    return None, int(digits) if digits.isdigit() else 16 if kind == "bfloat16" else None


def _inline(value: Any, kind: str) -> np.ndarray | None:  # noqa: ANN401
    """Return the bytes of a tensor stored in the program itself; None for strings and booleans."""
    tensor = value.tensor
    match tensor.WhichOneof("value"):
        case "floats":
            return np.array(tensor.floats.values, np.float32).view(np.uint8)
        case "doubles":
            return np.array(tensor.doubles.values, np.float64).view(np.uint8)
        case "ints":
            return (
                np.array(tensor.ints.values, np.int32).view(np.uint8) if kind == "int32" else None
            )
        case "bytes":
            return np.frombuffer(tensor.bytes.values, np.uint8)
        case _:
            return None
