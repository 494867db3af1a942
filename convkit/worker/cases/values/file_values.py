"""Values of an input from a file: an array, an archive of arrays, or an image's bytes."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.worker.cases.values.encoded_images import read_encoded
from convkit.worker.job_context import UnfitDataError

_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)


def values_of_file(
    spec: TensorSpec, path: Path, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    """Return a file's values, cut or repeated to the shape, axis by axis; leading axes that the
    file lacks are repeated. Of an archive, the array with the input's name counts. The bytes of an
    image are whole in each row. Raises UnfitDataError for a file that the input cannot have.
    """
    if path.suffix not in (".npy", ".npz"):
        return read_encoded(path, spec, shape, _key(spec))
    values = _read(spec, path)
    if (
        values.ndim > len(shape)
        or 0 in values.shape
        or not np.can_cast(values.dtype, dtype, "same_kind")
    ):
        problem = (
            f"{path} holds {values.dtype} of shape {list(values.shape)}; input"
            f" {spec.name!r} is {spec.dtype} with {len(shape)} axes"
        )
        fix = f"Save {spec.dtype} values with at most {len(shape)} axes, none of them empty."
        raise UnfitDataError(_key(spec), problem, fix, tensor=spec.name)
    values = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    for axis, size in enumerate(shape):
        values = np.take(values, np.arange(size) % values.shape[axis], axis=axis)
    return np.ascontiguousarray(values, dtype=dtype).reshape(shape)


def _read(spec: TensorSpec, path: Path) -> np.ndarray:
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        with np.load(path, allow_pickle=False) as archive:
            if spec.name in archive.files:
                return np.asarray(archive[spec.name])
            found = ", ".join(map(repr, archive.files)) or "no array"
    except _UNREADABLE as error:
        problem = f"{path} is not a readable {path.suffix} file ({error})"
        how = "one array with numpy.save" if path.suffix == ".npy" else "arrays with numpy.savez"
        fix = f"Save {how}, without Python objects."
        raise UnfitDataError(_key(spec), problem, fix, tensor=spec.name) from error
    problem = f"{path} has no array named {spec.name!r}; it has {found}"
    fix = "Save each array under its input's name: numpy.savez(FILE, **inputs)."
    raise UnfitDataError(_key(spec), problem, fix, tensor=spec.name)


def _key(spec: TensorSpec) -> str:
    return f"the sample's file of input {spec.name!r}"
