"""The weights file of an .mlpackage: validates every record that the program references before
reading it.

coremltools' own reader trusts offsets and sizes. Layout (MILBlob's storage format, version 2,
little-endian): a 64-byte header whose second word is the version, and for every record 64 bytes of
metadata that begin with the sentinel, the element type (uint32), the data's size in bytes and its
offset in the file (uint64).
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_files import ProgramPackage

_HEADER = struct.Struct("<II")
_RECORD = struct.Struct("<IIQQ")
_RECORD_BYTES = 64
_VERSION = 2
_SENTINEL = 0xDEADBEEF


def check_weights(package: ProgramPackage, program: Any) -> int:  # noqa: ANN401 - a protocol buffer
    """Check that every weight of a program lies within its file; return their total size in bytes,
    counting shared records once.

    Raises StageFailedError for a missing, truncated or foreign file.
    """
    wanted: dict[str, set[int]] = {}
    for value in _file_values(program):
        wanted.setdefault(value.fileName.split("/")[-1], set()).add(value.offset)
    return sum(
        _check_file(package.weights / name, sorted(offsets)) for name, offsets in wanted.items()
    )


def _check_file(path: Path, offsets: list[int]) -> int:
    if not path.is_file():
        raise StageFailedError(
            f"{path}: the weights are missing: an incomplete copy. Copy or convert it again."
        )
    size = path.stat().st_size
    with path.open("rb") as file:
        version = _HEADER.unpack(file.read(_HEADER.size))[1] if size >= _RECORD_BYTES else None
        if version != _VERSION:
            raise StageFailedError(
                f"{path}: not a weights file of a known kind. Copy or convert it again."
            )
        return sum(_record_bytes(file, path, offset, size) for offset in offsets)


def _record_bytes(file: BinaryIO, path: Path, offset: int, size: int) -> int:
    if offset + _RECORD_BYTES <= size:
        file.seek(offset)
        sentinel, _, length, start = _RECORD.unpack(file.read(_RECORD.size))
        if sentinel == _SENTINEL and start + length <= size:
            return int(length)
    raise StageFailedError(
        f"{path}: truncated or damaged: the record at byte {offset:,} does not fit into a file of"
        f" {size:,} bytes. Copy or convert it again."
    )


def _file_values(program: Any) -> Iterator[Any]:  # noqa: ANN401
    for function in program.functions.values():
        for block in function.block_specializations.values():
            yield from _block_values(block)


def _block_values(block: Any) -> Iterator[Any]:  # noqa: ANN401
    for operation in block.operations:
        values = list(operation.attributes.values())
        for argument in operation.inputs.values():
            values += [
                each.value for each in argument.arguments if each.WhichOneof("binding") == "value"
            ]
        for value in values:
            if value.WhichOneof("value") == "blobFileValue":
                yield value.blobFileValue
        for inner in operation.blocks:
            yield from _block_values(inner)
