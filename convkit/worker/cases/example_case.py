"""The user's own example: one call's inputs, kept beside the recipe by `convkit init --example`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Axis, Contract, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.messages import EXAMPLE_FILE, MOST_EXAMPLE_BYTES
from convkit.protocol.numpy_dtypes import numpy_dtype
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.job_context import UnfitDataError

_KEY = "verify.example"
_FIX = (
    "Save one array for each input under its name: numpy.savez(FILE, **inputs). Or draft the recipe"
    " again with convkit init --example."
)


def write_example(folder: Path, arrays: Mapping[str, np.ndarray]) -> int:
    """Write an example's values, unless they are too many; return their bytes."""
    size = sum(each.nbytes for each in arrays.values())
    if size <= MOST_EXAMPLE_BYTES:
        with (folder / EXAMPLE_FILE).open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return size


def example_case(made_from: CaseInputs, path: str | None) -> list[Case] | str:
    """Return the case of the recipe's example, or why there is none; raises UnfitDataError for a
    file that is not of this contract.
    """
    if path is None:
        return "the recipe has no example (verify.example)"
    contract = made_from.contract
    arrays = _read(path, contract)
    sizes = _sizes(path, contract, arrays)
    feeds: Feeds = {
        spec.name: arrays[spec.name].astype(numpy_dtype(spec.dtype)) for spec in contract.inputs
    }
    description = f"your own example, {Path(path).name} ({sizes_text(sizes)})"
    return [Case("example", description, sizes, lambda: dict(feeds))]


def _read(path: str, contract: Contract) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:
        problem = f"{path} is not a readable .npz file ({error})"
        raise UnfitDataError(_KEY, problem, _FIX) from error
    names = {spec.name for spec in contract.inputs}
    if arrays.keys() != names:
        problem = f"{path} has {_listed(arrays)}; the recipe's inputs are {_listed(names)}"
        raise UnfitDataError(_KEY, problem, _FIX)
    for spec in contract.inputs:
        values = arrays[spec.name]
        fits = np.can_cast(values.dtype, numpy_dtype(spec.dtype), "same_kind")
        if not fits or values.ndim != len(spec.shape):
            raise UnfitDataError(_KEY, _mismatch(path, spec, values), _FIX, tensor=spec.name)
    return arrays


def _sizes(path: str, contract: Contract, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the axes' sizes in an example; an axis that no input has is typical."""
    sizes: dict[str, int] = {}
    for axis in contract.axes:
        for spec in contract.inputs:
            shape = arrays[spec.name].shape
            for size, dimension in zip(shape, spec.shape, strict=True):
                if isinstance(dimension, str) and dimension_axes(dimension) == (axis.name,):
                    sizes.setdefault(axis.name, _size_of(axis, dimension, size))
        if sizes.setdefault(axis.name, axis.typical) < 0:
            problem = f"{path} has a size of {axis.name!r} outside of {axis.min} to {axis.max}"
            fix = f"Widen axes.{axis.name} to the size of the example, or use another example."
            raise UnfitDataError(_KEY, problem, fix)
    for spec in contract.inputs:
        if not spec.fits(arrays[spec.name].shape, sizes):
            raise UnfitDataError(
                _KEY, _mismatch(path, spec, arrays[spec.name]), _FIX, tensor=spec.name
            )
    return sizes


def _size_of(axis: Axis, dimension: str, size: int) -> int:
    """Return the axis's size at which a dimension has some size; -1 if it has none."""
    tried = (size,) if dimension == axis.name else range(axis.min, axis.max + 1)
    legal = (each for each in tried if axis.min <= each <= axis.max)
    return next((n for n in legal if dimension_size(dimension, {axis.name: n}) == size), -1)


def _mismatch(path: str, spec: TensorSpec, values: np.ndarray) -> str:
    shape = ", ".join(map(str, spec.shape))
    return (
        f"{path} holds {values.dtype} of shape {list(values.shape)} for input {spec.name!r}, which"
        f" is {spec.dtype} of shape [{shape}]"
    )


def _listed(names: "Mapping[str, object] | set[str]") -> str:
    return ", ".join(map(repr, sorted(names))) or "no arrays"
