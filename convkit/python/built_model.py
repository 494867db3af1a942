"""Opens a model that convkit built and runs it by name: `convkit.load("model.onnx")`.

Needs numpy and onnxruntime (convkit's extra `onnx`), or coremltools and torch for Core ML packages.
Nothing is converted or guessed: a feed that does not fit the contract raises FeedError, which
explains what to write instead.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.built_model_origin import Origin, checked_origin
from convkit.protocol.contract import (
    Contract,
    DimensionError,
    TensorSpec,
    dimension_axes,
    dimension_size,
)
from convkit.protocol.errors import FeedError, ModelFileError
from convkit.protocol.installation import install_command
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import JOINED_FILE, CustomOps, Device, JoinedModel, OperatorLibrary
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import Runtime
from convkit.protocol.spelling import suggestion
from convkit.worker.job_context import StageFailedError, StageSkippedError
from convkit.worker.original.contract_check import CONTRACT_KEY, check_contract
from convkit.worker.runtime_interface.refusal_causes import with_remedy
from convkit.worker.runtime_interface.registered_operators import using
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    OpenedModel,
    RunFailedError,
    RuntimeSession,
)

if TYPE_CHECKING:
    import numpy as np

    from convkit.worker.join.joined_session import JoinedSession
    from convkit.worker.pre_and_postprocessing.results import Results


def load(
    path: str | Path,
    *,
    device: Device = "cpu",
    optimization: str = "all",
    custom_ops: Sequence[str | Path] = (),
) -> "Session":
    """Open a model built by convkit: its file or package, or the folder that contains it.

    `optimization` is onnxruntime's level: none, basic, extended or all; other runtimes ignore it. A
    Core ML package is run by Core ML on macOS, and evaluated elsewhere, which needs coremltools and
    torch. `custom_ops` are the shared libraries of the model's custom operators for onnxruntime:
    their code runs in this process, so convkit never looks for them itself. Raises ModelFileError
    if the file cannot be read, contains no contract (C301), violates its contract, or if the device
    is absent.

    A model of several parts is opened by its folder, which contains `join.json`: calling it calls
    the parts as the recipe joined them.
    """
    if isinstance(custom_ops, str | Path):
        raise ModelFileError(f"custom_ops={custom_ops!r}: pass a list of libraries' paths")
    libraries = tuple(OperatorLibrary(str(library)) for library in custom_ops)
    with using(CustomOps(libraries)):
        if (file := _joined_file(Path(path))) is not None:
            joined = _open_joined(file, device, optimization)
            return Session(joined.contract(), joined, str(path), file)
        file, runtime = _find_model(Path(path))
        contract, session = _open_one(file, runtime, device, optimization)
        return Session(contract, session, str(path), file)


def _joined_file(path: Path) -> Path | None:
    """Return the file that joins a model's parts, if the path is that file or its folder."""
    file = path / JOINED_FILE if path.is_dir() else path
    return file if file.name == JOINED_FILE and file.is_file() else None


def _open_joined(file: Path, device: Device, optimization: str) -> "JoinedSession":
    from convkit.worker.join.joined_session import JoinedSession
    from convkit.worker.join.part_flow import Wiring

    try:
        model = decode(JoinedModel, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise ModelFileError(f"{file} cannot be read: {error}") from error
    opened = {
        name: _open_one(*_find_model(file.parent / folder), device, optimization)
        for name, folder in model.parts.items()
    }
    contracts = {name: contract for name, (contract, _) in opened.items()}
    wiring = Wiring(model.flow, model.contract, contracts)
    return JoinedSession(wiring, {name: session for name, (_, session) in opened.items()})


def _open_one(
    file: Path, runtime: Runtime, device: Device, optimization: str
) -> tuple[Contract, RuntimeSession]:
    """Return a model of one graph and its contract; raises ModelFileError."""
    assert runtime.session is not None
    try:
        opened: OpenedModel = runtime.load(runtime.session)(file, device, optimization)
    except ImportError as error:
        needed = ("numpy", *(runtime.inspects_with or runtime.tools[:1]))
        raise ModelFileError(
            f"opening {file} needs {' and '.join(needed)}: {_installation(needed)}"
        ) from error
    except (ModelRefusedError, StageFailedError, StageSkippedError) as error:
        raise ModelFileError(f"{file}: {with_remedy(error)}") from error
    contract = _carried_contract(file, opened.session.metadata())
    if findings := check_contract(opened.declared(contract), opened.served, "session"):
        broken = "; ".join(f"{finding.code} {finding.message}" for finding in findings)
        raise ModelFileError(f"{file} violates its own contract: {broken}")
    return contract, opened.session


def _installation(packages: tuple[str, ...]) -> str:
    """Return the command that installs packages; convkit's extra `onnx` includes onnxruntime's."""
    if "onnxruntime" in packages:
        return install_command("onnx")
    return f"pip install {' '.join(packages)}"


def _find_model(path: Path) -> tuple[Path, Runtime]:
    """Return the model at a path or in a folder, and its runtime; raises ModelFileError."""
    known = [row for row in runtimes().values() if row.session is not None]
    for row in known:
        if path.name.endswith(row.suffix) and path.exists():
            return path, row
    for row in known:
        if (file := path / f"model{row.suffix}").exists():
            return file, row
    names = ", ".join(f"model{row.suffix}" for row in known)
    raise ModelFileError(f"no such model: {path}; a folder of built files has one of {names}")


def _carried_contract(file: Path, metadata: Mapping[str, str]) -> Contract:
    text = metadata.get(CONTRACT_KEY)
    if text is None:
        raise ModelFileError(
            f"C301 {file} has no contract, so its inputs can only be guessed. "
            "Open a file that convkit built, or add this one to a recipe with model.onnx"
        )
    try:
        return decode(Contract, json.loads(text))
    except (ValueError, CodecError) as error:
        raise ModelFileError(f"C301 {file} has a damaged contract: {error}") from error


class Session:
    """A model and its contract. Calling it binds inputs by name only.

    `contract` lists the inputs and outputs.
    """

    def __init__(self, contract: Contract, runtime: RuntimeSession, path: str, file: Path) -> None:
        self.contract = contract
        self._runtime = runtime
        self._path = path
        self._file = file

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's inputs, in the contract's order."""
        return self.contract.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The model's outputs, in the contract's order."""
        return self.contract.outputs

    @property
    def origin(self) -> Origin | None:
        """The run that built the model, from `origin.json` beside it; None if there is no such
        file. The first use reads the model's files whole: raises ModelFileError if they are not
        the ones that this run built.
        """
        return checked_origin(self._file)

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
            raise FeedError(
                f"{', '.join(map(repr, doubled))} passed twice, in the mapping and by name"
            )
        return self.run(given | named)

    def run(self, feeds: "Mapping[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Return every output by name, in the contract's order.

        `feeds` contains one array per input, of exactly the declared dtype. The sizes of its axes
        must agree across inputs and be within the contract's ranges. Raises FeedError for anything
        else, and if the runtime fails.
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

    def prepare(self, name: str, images: "Sequence[np.ndarray]") -> "np.ndarray":
        """Return what an image input takes for decoded RGB images, uint8 [rows, columns, 3].

        They are resized, and normalized unless the model does that itself, with the constants in
        the contract: `session(image=session.prepare("image", [photo]))`. Needs Pillow. Raises
        FeedError.
        """
        from convkit.worker.pre_and_postprocessing.images import prepared_batch

        spec = next((each for each in self.inputs if each.name == name), None)
        if spec is None or spec.preprocess is None or spec.preprocess.image is None:
            known = [each.name for each in self.inputs if each.preprocess and each.preprocess.image]
            listed = ", ".join(known) or "none; declare preprocess.image in the recipe"
            raise FeedError(f"{name!r} is not an image input (image inputs: {listed})")
        try:
            return prepared_batch(spec.preprocess, images)
        except StageFailedError as error:
            raise FeedError(f"{name!r}: {error}") from error
        except ImportError as error:
            raise FeedError(
                f"resizing images needs Pillow: pip install pillow ({error})"
            ) from error

    def results(self, outputs: "Mapping[str, np.ndarray]") -> "dict[str, list[Results]]":
        """Return the labels, detections or texts of outputs that this session returned, by output,
        for each row of the batch.

        They follow from the constants in the contract: `session.results(session(image=photo))`.
        Raises FeedError if no output declares them, or an output is missing.
        """
        from convkit.worker.pre_and_postprocessing.results import results

        declared = {each.name: each.postprocess for each in self.outputs if each.postprocess}
        if not declared:
            raise FeedError("no output has results; declare outputs.N.postprocess in the recipe")
        needed = [*declared, *(each.scores for each in declared.values() if each.scores)]
        if missing := [name for name in needed if name not in outputs]:
            names = ", ".join(map(repr, missing))
            raise FeedError(f"results need the output {names}: pass all outputs of a call")
        return {name: results(name, each, outputs) for name, each in declared.items()}

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
            f"unknown input {name!r}{suggestion(name, missing or known)}"
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
                raise FeedError(f"{spec.name!r} has shape {list(shape)}; the contract says {spec}")
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
                f"{name!r}: axis {axis!r} has size {size}; the model was verified from"
                f" {limits.min} to {limits.max}"
            )
        first, where = sizes.setdefault(axis, (size, name))
        if first != size:
            raise FeedError(f"axis {axis!r} has size {first} in {where!r} but {size} in {name!r}")


def _check_dtype(spec: TensorSpec, value: object) -> None:
    import numpy as np

    from convkit.protocol.numpy_dtypes import dtype_name

    if not isinstance(value, np.ndarray):
        kind = type(value).__name__
        raise FeedError(
            f"{spec.name!r} is a {kind}; pass a numpy array, such as np.asarray({spec.name},"
            f" dtype=np.{_numpy(spec)})"
        )
    if (found := dtype_name(value.dtype)) != spec.dtype:
        raise FeedError(
            f"{spec.name!r} is {found}; the model expects {spec.dtype}. convkit does not convert"
            f" silently: write {spec.name}.astype(np.{_numpy(spec)}) if that is right"
        )


def _numpy(spec: TensorSpec) -> str:
    return "bool_" if spec.dtype == "bool" else spec.dtype


def _check_concrete(spec: TensorSpec, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """Check fixed sizes and arithmetic; leave axes that occur only in arithmetic to the runtime."""
    for dimension, size in zip(spec.shape, shape, strict=True):
        try:
            wanted = dimension_size(dimension, sizes)
        except DimensionError:
            continue
        if wanted != size:
            meaning = "" if isinstance(dimension, int) else f" ({dimension})"
            raise FeedError(
                f"{spec.name!r} has shape {list(shape)}; expected {wanted}{meaning} instead of"
                f" {size} in {spec}"
            )
