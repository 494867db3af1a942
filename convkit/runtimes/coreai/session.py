"""Runs Core AI files on the CPU, by Apple's own runtime."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from convkit.protocol.contract import Contract, DType, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import Device, Fallback
from convkit.runtimes.coreai.execution.executor import EXECUTOR
from convkit.runtimes.coreai.execution.inner_values import logged_values
from convkit.runtimes.coreai.execution.loaded_files import Function, Slot, load, release, run
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
    """A file that is loaded in the executor's process. Feeds and results have the contract's types;
    a call runs the entry point that is made for its sizes, otherwise `main`.
    """

    providers = ("Core AI, CPU",)

    def __init__(self, file: Path, folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        """Load a file; raises ModelRefusedError. `folder` is kept as long as the session: the file
        is loaded again after a crash.
        """
        self._file, self._folder = file, folder
        self._number, self._starts = 0, 0
        self._functions: dict[str, Function] = {}
        try:
            self._texts = _texts(file)
            self._load()
            self._main = self._functions[MAIN]
        except (RunFailedError, OSError, ValueError, KeyError) as error:
            raise ModelRefusedError(f"{file.name}: {error}") from error
        self._stored = _stored_contract(self._texts)
        try:
            self._states = read_states(self._texts)
        except (ValueError, CodecError) as error:
            raise ModelRefusedError(f"{file.name}: damaged metadata: {error}") from error

    def _load(self) -> None:
        """Load the file, unless the executor has it."""
        if not EXECUTOR.holds(self._starts):
            self._number, self._functions = EXECUTOR.call(load, self._file)
            self._starts = EXECUTOR.starts

    def contract(self) -> Contract:
        """Return names, order, types and shapes as the file declares them; sizes that vary have no
        names there.
        """
        described = self._main
        stated = Contract(
            tuple(map(_spec, described.inputs)), tuple(map(_spec, described.outputs)), ()
        )
        shapes = {each.name: each.shape for each in described.states}
        return declared(with_states(stated, self._states, shapes))

    def metadata(self) -> Mapping[str, str]:
        """Return the file's metadata strings."""
        return self._texts

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: there is no other device on this machine."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name, in the contract's types; raises RunFailedError."""
        name = self._function_for(feeds)
        starts = {each.name: each.input for each in self._states}
        given, held = served(self._functions[name], feeds, starts)
        self._load()
        found = EXECUTOR.call(run, self._number, name, given, held)
        found |= {s.output: found.pop(s.name).astype(s.dtype) for s in self._states}
        types = {spec.name: spec.dtype for spec in self._stored.outputs}
        return {
            name: array.astype(types[name])
            if NARROWED.get(types.get(name, "")) == array.dtype  # type: ignore[call-overload]
            else array
            for name, array in found.items()
        }

    def logged(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return what the main function computes on the way (see `logged_values`); raises
        RunFailedError.
        """
        given, _ = served(self._main, feeds, {})
        return EXECUTOR.call(logged_values, self._file, MAIN, given)

    def _function_for(self, feeds: Mapping[str, np.ndarray]) -> str:
        """Return the function with the most fixed sizes among those that take these inputs."""

        def fixed(name: str) -> int:
            count = 0
            for slot in self._functions[name].inputs:
                given = feeds[slot.name].shape if slot.name in feeds else None
                if given is None or len(slot.shape) != len(given):
                    return -1
                if any(a is not None and a != b for a, b in zip(slot.shape, given, strict=True)):
                    return -1
                count += sum(size is not None for size in slot.shape)
            return count

        best = max(self._functions, key=fixed)
        return best if fixed(best) >= 0 else MAIN

    def __del__(self) -> None:
        """Release the compiled files, and remove the folder."""
        is_there = EXECUTOR.holds(getattr(self, "_starts", 0))
        if is_there and not sys.is_finalizing():  # the executor ends with this process
            with contextlib.suppress(RunFailedError):
                EXECUTOR.call(release, self._number)
        if (folder := getattr(self, "_folder", None)) is not None:
            folder.cleanup()


def served(
    function: Function, feeds: Mapping[str, np.ndarray], states: Mapping[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a function's inputs and what its states start as, in the types that it declares;
    `states` names the feed that each state starts as.

    Raises RunFailedError for an input that is missing, or not exactly the same in that type.
    """
    missing = [n for n in (*(s.name for s in function.inputs), *states.values()) if n not in feeds]
    if missing:
        raise RunFailedError(f"the model has the input {missing[0]!r}, which is not fed")
    given = {s.name: _narrowed(s.name, feeds[s.name], s.dtype) for s in function.inputs}
    types = {each.name: each.dtype for each in function.states}
    return given, {n: _narrowed(fed, feeds[fed], types[n]) for n, fed in states.items()}


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


def _spec(slot: Slot) -> TensorSpec:
    sizes = tuple(UNKNOWN_DIMENSION if size is None else size for size in slot.shape)
    return TensorSpec(slot.name, cast("DType", slot.dtype), sizes)


def _stored_contract(texts: Mapping[str, str]) -> Contract:
    try:
        return decode(Contract, json.loads(texts[CONTRACT_KEY]))
    except (KeyError, ValueError, CodecError):  # the check of the stored contract reports it
        return Contract((), (), ())


def open_built(path: Path, _device: Device, _optimization: str) -> OpenedModel:
    """Open a file for `convkit.load`; raises ModelRefusedError."""
    session = CoreAISession(path)
    return OpenedModel(session, session.contract(), declared)
