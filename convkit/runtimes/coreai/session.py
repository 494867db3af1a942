"""Runs Core AI files on the CPU, by Apple's own runtime."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import Device, Fallback
from convkit.runtimes.coreai.file_contract import (
    MAIN,
    METADATA_FILE,
    MODEL_FILE,
    NARROWED,
    declared,
)
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.worker.building.held_states import read_states, with_states
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION
from convkit.worker.runtime_interface.sessions import ModelRefusedError, OpenedModel, RunFailedError

if TYPE_CHECKING:
    from convkit.protocol.messages import BuildRequest
    from convkit.worker.original.probing.prepared_model import PreparedModel
__all__ = ["MODEL_FILE", "CoreAISession", "convert", "declared", "open", "open_built"]


def convert(
    prepared: "PreparedModel", request: "BuildRequest[CoreAIOptions]", file: Path
) -> list[Finding]:
    """Convert a model (see `convert_module`)."""
    # Only a build's environment has torch.
    from convkit.runtimes.coreai.module_conversion import convert_module

    return convert_module(prepared, request, file)


def open(path: Path, device: Device, options: CoreAIOptions) -> "CoreAISession":  # noqa: A001
    """Load a built file; raises ModelRefusedError."""
    del device, options
    return CoreAISession(path)


class CoreAISession:
    """A file that is compiled for this machine and loaded. Feeds and results have the contract's
    types; a call runs the entry point that is made for its sizes, otherwise `main`.
    """

    providers = ("Core AI, CPU",)

    def __init__(self, file: Path) -> None:
        """Load a file; raises ModelRefusedError."""
        from coreai.authoring import AIModelAsset

        self._runner = asyncio.Runner()
        try:
            asset = AIModelAsset.load(file)
            self._texts = _texts(file)
            self._held = asset.executable()
            self._model = self._runner.run(self._held.__aenter__())
            self._functions = {
                name: self._model.load_function(name) for name in self._model.function_names
            }
            self._main = self._functions[MAIN]
        except Exception as error:
            raise ModelRefusedError(f"{file.name}: {error}") from error
        self._stored = _stored_contract(self._texts)
        try:
            self._states = read_states(self._texts)
        except (ValueError, CodecError) as error:
            raise ModelRefusedError(f"{file.name}: damaged metadata: {error}") from error

    def contract(self) -> Contract:
        """Return names, order, types and shapes as the file declares them; sizes that vary have no
        names there.
        """
        described = self._main.desc
        stated = Contract(
            tuple(_spec(n, described.input_descriptor(n)) for n in described.input_names),
            tuple(_spec(n, described.output_descriptor(n)) for n in described.output_names),
            (),
        )
        shapes = {name: _sizes(described.state_descriptor(name)) for name in described.state_names}
        return declared(with_states(stated, self._states, shapes))

    def metadata(self) -> Mapping[str, str]:
        """Return the file's metadata strings."""
        return self._texts

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: there is no other device on this machine."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name, in the contract's types; raises RunFailedError."""
        function = self._function_for(feeds)
        found = call(self._runner, function, feeds, {s.name: s.input for s in self._states})
        found |= {s.output: found.pop(s.name).astype(s.dtype) for s in self._states}
        types = {spec.name: spec.dtype for spec in self._stored.outputs}
        return {
            name: array.astype(types[name])
            if NARROWED.get(types.get(name, "")) == array.dtype  # type: ignore[call-overload]
            else array
            for name, array in found.items()
        }

    def _function_for(self, feeds: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401 - coreai's
        """Return the function with the most fixed sizes among those that take these inputs."""

        def fixed(function: Any) -> int:  # noqa: ANN401 - coreai's
            described = function.desc
            count = 0
            for name in described.input_names:
                if name not in feeds:
                    return -1
                shape, given = _sizes(described.input_descriptor(name)), feeds[name].shape
                if len(shape) != len(given):
                    return -1
                if any(a is not None and a != b for a, b in zip(shape, given, strict=True)):
                    return -1
                count += sum(size is not None for size in shape)
            return count

        best = max(self._functions.values(), key=fixed)
        return best if fixed(best) >= 0 else self._main

    def __del__(self) -> None:
        """Release the compiled files."""
        runner = getattr(self, "_runner", None)
        if runner is not None:
            if hasattr(self, "_model"):
                runner.run(self._held.__aexit__(None, None, None))
            runner.close()


def call(
    runner: asyncio.Runner,
    function: Any,  # noqa: ANN401 - coreai's
    feeds: Mapping[str, np.ndarray],
    states: Mapping[str, str] = {},
) -> dict[str, np.ndarray]:
    """Run a function on inputs in any types that it can take exactly; raises RunFailedError.

    `states` says which of the feeds a state starts as; what it becomes is returned under its name.
    """
    from coreai.runtime import NDArray

    described = function.desc
    missing = [n for n in (*described.input_names, *states.values()) if n not in feeds]
    if missing:
        raise RunFailedError(f"the model has the input {missing[0]!r}, which is not fed")
    try:
        given = {
            name: NDArray(_narrowed(name, feeds[name], described.input_descriptor(name).dtype))
            for name in described.input_names
        }

        # The function writes into its states: never into what was fed.
        held = {
            name: NDArray(_narrowed(fed, feeds[fed], described.state_descriptor(name).dtype).copy())
            for name, fed in states.items()
        }

        async def run() -> dict[str, np.ndarray]:
            found = await function(given, state=held)
            arrays = {**found, **held}
            return {name: np.array(array.numpy(), copy=True) for name, array in arrays.items()}

        return runner.run(run())
    except RunFailedError:
        raise
    except Exception as error:
        raise RunFailedError(str(error)) from error


def _narrowed(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """Return an input in the file's type; raises RunFailedError for integers that it cannot hold.

    Floats are rounded: the file was built to compute in that type.
    """
    if array.dtype == np.dtype(dtype):
        return np.ascontiguousarray(array)
    served = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(served, array):
        largest = array.flat[np.abs(array.astype(np.float64)).argmax()]
        raise RunFailedError(f"{name} has {largest}, which {dtype}, the file's type, cannot hold")
    return served


def _texts(file: Path) -> dict[str, str]:
    """Return the strings that a file's maker stored in its metadata; raises OSError, ValueError."""
    stated = json.loads((file / METADATA_FILE).read_text(encoding="utf-8"))
    given = stated.get("creatorDefinedMetadata", {})
    return {name: value for name, value in given.items() if isinstance(value, str)}


def _spec(name: str, descriptor: Any) -> TensorSpec:  # noqa: ANN401 - coreai's
    sizes = [UNKNOWN_DIMENSION if size is None else size for size in _sizes(descriptor)]
    return TensorSpec(name, descriptor.dtype, tuple(sizes))


def _sizes(descriptor: Any) -> list[int | None]:  # noqa: ANN401 - coreai's
    """Return a tensor's sizes, None for those that vary: coreai says -1, contrary to its types."""
    return [None if size is None or size < 0 else size for size in descriptor.shape]


def _stored_contract(texts: Mapping[str, str]) -> Contract:
    try:
        return decode(Contract, json.loads(texts[CONTRACT_KEY]))
    except (KeyError, ValueError, CodecError):  # the check of the stored contract reports it
        return Contract((), (), ())


def open_built(path: Path, _device: Device, _optimization: str) -> OpenedModel:
    """Open a file for `convkit.load`; raises ModelRefusedError."""
    session = CoreAISession(path)
    return OpenedModel(session, session.contract(), declared)
