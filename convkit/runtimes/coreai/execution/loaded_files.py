"""Core AI files that are loaded in this process, the executor's, and run there."""

import asyncio
import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Slot:
    """An input, output or state of a function; a size that varies is None."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Function:
    """What a function of a file is called with, and what it returns."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    states: tuple[Slot, ...]


class _LoadedFile:
    """A file that is compiled for this machine and loaded."""

    def __init__(self, file: Path) -> None:
        from coreai.authoring import AIModelAsset

        self._runner = asyncio.Runner()
        self._held = AIModelAsset.load(file).executable()
        model = self._runner.run(self._held.__aenter__())
        self.functions = {name: model.load_function(name) for name in model.function_names}

    def run(
        self, function: str, feeds: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        return run_function(self._runner, self.functions[function], feeds, states)

    def close(self) -> None:
        self._runner.run(self._held.__aexit__(None, None, None))
        self._runner.close()


_FILES: dict[int, _LoadedFile] = {}
_NUMBERS = itertools.count()


def load(file: Path) -> tuple[int, dict[str, Function]]:
    """Load a file; return its number here, and its functions by name."""
    loaded, number = _LoadedFile(file), next(_NUMBERS)
    _FILES[number] = loaded
    return number, {name: _described(each) for name, each in loaded.functions.items()}


def run(
    number: int, function: str, feeds: Mapping[str, np.ndarray], states: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return a function's outputs, and what its states become, by name. All arrays have the types
    that the function declares.
    """
    return _FILES[number].run(function, feeds, states)


def release(number: int) -> None:
    """Release a file's memory."""
    _FILES.pop(number).close()


def run_function(
    runner: asyncio.Runner,
    function: Any,  # noqa: ANN401 - coreai's
    feeds: Mapping[str, np.ndarray],
    states: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Run a loaded function, as `run` does."""
    from coreai.runtime import NDArray

    given = {name: NDArray(array) for name, array in feeds.items()}
    # The function writes into its states: never into what was fed.
    held = {name: NDArray(array.copy()) for name, array in states.items()}

    async def outputs() -> dict[str, np.ndarray]:
        found = await function(given, state=held)
        arrays = {**found, **held}
        return {name: np.array(array.numpy(), copy=True) for name, array in arrays.items()}

    return runner.run(outputs())


def _described(function: Any) -> Function:  # noqa: ANN401 - coreai's
    stated = function.desc

    def slots(names: list[str], described: Any) -> tuple[Slot, ...]:  # noqa: ANN401 - coreai's
        return tuple(Slot(n, str(described(n).dtype), _sizes(described(n))) for n in names)

    return Function(
        slots(stated.input_names, stated.input_descriptor),
        slots(stated.output_names, stated.output_descriptor),
        slots(stated.state_names, stated.state_descriptor),
    )


def _sizes(descriptor: Any) -> tuple[int | None, ...]:  # noqa: ANN401 - coreai's
    """Return a tensor's sizes, None for those that vary: coreai says -1, contrary to its types."""
    return tuple(None if size is None or size < 0 else size for size in descriptor.shape)
