"""Opens a model that convkit built and runs it by name: `convkit.load("model.onnx")`.

Needs numpy and onnxruntime (the extra `onnx`), or coremltools and torch for Core ML
packages; nothing here converts or guesses. A feed that does not fit the contract raises FeedError,
which says what to write instead.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.codec import CodecError, decode
from convkit.errors import FeedError, ModelFileError
from convkit.installation import install_command
from convkit.models.contract_check import CONTRACT_KEY, check_contract
from convkit.tensors import Contract, DimensionError, TensorSpec, dimension_axes, dimension_size
from convkit.worker.context import StageFailedError, StageSkippedError
from convkit.worker.nearest import suggestion
from convkit.worker.protocol import Device
from convkit.worker.sessions import ModelRefusedError, RunFailedError, RuntimeSession

if TYPE_CHECKING:
    import numpy as np

MODEL_FILE = "model.onnx"
PACKAGE = "model.mlpackage"


def load(path: str | Path, *, device: Device = "cpu", optimization: str = "all") -> "Session":
    """Open a model built by convkit: its .onnx file or .mlpackage, or the folder it lies in.

    `optimization` is onnxruntime's level: none, basic, extended or all. A Core ML package is run by
    Core ML on macOS, and evaluated elsewhere, which needs coremltools and torch. Raises
    ModelFileError where the file cannot be read, carries no contract (C301), does not keep the one
    it carries, or where the device is absent.
    """
    file = Path(path)
    if file.suffix == ".mlpackage" or (file / PACKAGE).is_dir():
        return _load_package(file if file.suffix == ".mlpackage" else file / PACKAGE, str(path))
    if file.is_dir():
        file /= MODEL_FILE
    if not file.is_file():
        raise ModelFileError(f"there is no model at {file}")
    try:
        from convkit.runtimes.onnxruntime import session as onnxruntime

        runtime = onnxruntime.open(file, device, {"optimization": optimization})
        found = runtime.contract()
    except ImportError as error:
        raise ModelFileError(
            f"opening {file} needs numpy and onnxruntime: {install_command('onnx')}"
        ) from error
    except (ModelRefusedError, StageFailedError, StageSkippedError) as error:
        raise ModelFileError(f"{file}: {error}") from error
    contract = _carried_contract(file, runtime.metadata())
    if findings := check_contract(contract, found, "session"):
        told = "; ".join(f"{finding.code} {finding.message}" for finding in findings)
        raise ModelFileError(f"{file} does not keep the contract that it carries: {told}")
    return Session(contract, runtime, str(path))


def _load_package(package: Path, path: str) -> "Session":
    try:
        from convkit.runtimes.coreml.session import EvaluatedProgram, PredictedProgram
        from convkit.runtimes.coreml.shapes import served_contract

        evaluated = EvaluatedProgram(package)
        runtime = PredictedProgram(package, evaluated) if sys.platform == "darwin" else evaluated
    except ImportError as error:
        raise ModelFileError(
            f"opening {package} needs coremltools and torch: pip install coremltools torch"
        ) from error
    except (ModelRefusedError, StageFailedError) as error:
        raise ModelFileError(str(error)) from error
    contract = _carried_contract(package, runtime.metadata())
    if findings := check_contract(served_contract(contract), runtime.contract(), "package"):
        told = "; ".join(f"{finding.code} {finding.message}" for finding in findings)
        raise ModelFileError(f"{package} does not keep the contract that it carries: {told}")
    return Session(contract, runtime, path)


def _carried_contract(file: Path, metadata: Mapping[str, str]) -> Contract:
    text = metadata.get(CONTRACT_KEY)
    if text is None:
        raise ModelFileError(
            f"C301 {file} carries no contract, so its inputs can only be guessed. "
            "Open a file that convkit built, or add this one to a recipe with model.onnx"
        )
    try:
        return decode(Contract, json.loads(text))
    except (ValueError, CodecError) as error:
        raise ModelFileError(f"C301 {file} carries a damaged contract: {error}") from error


class Session:
    """A model under its contract. `contract` is what it takes and gives; calling it binds inputs by
    name only.
    """

    def __init__(self, contract: Contract, runtime: RuntimeSession, path: str) -> None:
        self.contract = contract
        self._runtime = runtime
        self._path = path

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the model takes, in the contract's order."""
        return self.contract.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What the model gives, in the contract's order."""
        return self.contract.outputs

    def __call__(
        self, *feeds: "Mapping[str, np.ndarray]", **named: "np.ndarray"
    ) -> "dict[str, np.ndarray]":
        """Run the model on `session({"input_ids": ids, ...})` or `session(input_ids=ids, ...)`; see
        `run`.
        """
        if len(feeds) > 1 or (feeds and not isinstance(feeds[0], Mapping)):
            raise FeedError(
                f"inputs are bound by name, never by position: call session({self._example()}) or"
                " pass one mapping"
            )
        given = dict(feeds[0]) if feeds else {}
        if doubled := sorted(given.keys() & named.keys()):
            raise FeedError(f"{', '.join(map(repr, doubled))} stands in the mapping and by name")
        return self.run(given | named)

    def run(self, feeds: "Mapping[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Return every output by name, in the contract's order.

        `feeds` holds one array per input: of exactly the declared dtype, of a shape whose axes
        agree over all inputs and lie within the contract's ranges. Raises FeedError for anything
        else, also where the runtime fails.
        """
        if not isinstance(feeds, Mapping):
            raise FeedError(
                "inputs are bound by name, never by position: call"
                f" session.run({{{self._example()}}})"
            )
        self._check_names(feeds)
        for spec in self.inputs:
            _check_dtype(spec, feeds[spec.name])
        self._check_shapes(feeds)
        try:
            outputs = self._runtime.run({spec.name: feeds[spec.name] for spec in self.inputs})
        except RunFailedError as error:
            raise FeedError(f"the runtime failed on these inputs: {error}") from error
        return {spec.name: outputs[spec.name] for spec in self.outputs}

    def __repr__(self) -> str:
        lines = [f"convkit.Session({self._path!r})"]
        lines += [f"  in   {spec}" for spec in self.inputs]
        lines += [f"  out  {spec}" for spec in self.outputs]
        lines += [f"  axis {axis.name}: {axis.min} to {axis.max}" for axis in self.contract.axes]
        return "\n".join(lines)

    def _example(self) -> str:
        return ", ".join(f"{spec.name}=..." for spec in self.inputs)

    def _check_names(self, feeds: Mapping[str, object]) -> None:
        known = [spec.name for spec in self.inputs]
        missing = [name for name in known if name not in feeds]
        problems = [
            f"there is no input {name!r}{suggestion(name, missing or known)}"
            for name in feeds
            if name not in known
        ]
        problems += [f"{name!r} is missing" for name in missing]
        if problems:
            raise FeedError(f"{'; '.join(problems)} (inputs: {', '.join(known)})")

    def _check_shapes(self, feeds: "Mapping[str, np.ndarray]") -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for spec in self.inputs:
            shape = feeds[spec.name].shape
            if len(shape) != len(spec.shape):
                raise FeedError(
                    f"{spec.name!r} has the shape {list(shape)}; the contract says {spec}"
                )
            for dimension, size in zip(spec.shape, shape, strict=True):
                if dimension_axes(dimension) == (dimension,):
                    self._check_axis(str(dimension), size, spec.name, sizes)
        known = {axis: size for axis, (size, _) in sizes.items()}
        for spec in self.inputs:
            _check_concrete(spec, feeds[spec.name].shape, known)

    def _check_axis(
        self, axis: str, size: int, name: str, sizes: dict[str, tuple[int, str]]
    ) -> None:
        limits = self.contract.axis(axis)
        if not limits.min <= size <= limits.max:
            raise FeedError(
                f"{name!r}: axis {axis!r} has the size {size}; the model was proven from"
                f" {limits.min} to {limits.max}"
            )
        first, where = sizes.setdefault(axis, (size, name))
        if first != size:
            raise FeedError(
                f"axis {axis!r} has the size {first} in {where!r} and {size} in {name!r}"
            )


def _check_dtype(spec: TensorSpec, value: object) -> None:
    import numpy as np

    from convkit.dtypes import dtype_name

    if not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise FeedError(
            f"{spec.name!r} is a {kind}; give a numpy array, such as np.asarray({spec.name},"
            f" dtype=np.{_numpy(spec)})"
        )
    if (found := dtype_name(value.dtype)) != spec.dtype:
        raise FeedError(
            f"{spec.name!r} is {found}; the model takes {spec.dtype}. Nothing is converted in"
            f" silence: write {spec.name}.astype(np.{_numpy(spec)}) if that is right"
        )


def _numpy(spec: TensorSpec) -> str:
    return "bool_" if spec.dtype == "bool" else spec.dtype


def _check_concrete(spec: TensorSpec, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """Check fixed sizes and arithmetic; an axis that no input has alone is left to the runtime."""
    for dimension, size in zip(spec.shape, shape, strict=True):
        try:
            wanted = dimension_size(dimension, sizes)
        except DimensionError:
            continue
        if wanted != size:
            meaning = "" if isinstance(dimension, int) else f" ({dimension})"
            raise FeedError(
                f"{spec.name!r} has the shape {list(shape)}; {wanted}{meaning} is due for {size} in"
                f" {spec}"
            )
