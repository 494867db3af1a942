"""What a file computes on the way, by Core AI's IntermediateLogger: composite operators (attention,
normalizations) show their own steps, too.
"""

import asyncio
import dataclasses
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convkit.runtimes.coreai.execution.loaded_files import run_function
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error

# Scalars and single numbers match by chance.
_LEAST_ELEMENTS = 4


@dataclasses.dataclass(frozen=True)
class InnerParting:
    """Where the steps inside an operator part from torch's: the last value that torch computes as
    well, and the shape and extremes of one after it, which torch does not compute.
    """

    agrees: str
    shape: tuple[int, ...]
    lowest: float
    highest: float

    def __str__(self) -> str:
        return (
            f"inside, its values agree with torch's up to {self.agrees}; the next have no"
            f" counterpart, such as a tensor of shape {list(self.shape)} from {self.lowest:.6g} to"
            f" {self.highest:.6g}"
        )


def logged_values(file: Path, main: str, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return every tensor of floats that a file's function computes for some inputs, in order; the
    inputs have the types that it declares.
    """
    from coreai.authoring import AIModelAsset
    from coreai.runtime import AIModel, CompileIdentifiers, IntermediateLogger, NDArray

    found: list[np.ndarray] = []

    reads_tensors = False

    def note(values: list[Any], kind: str, _: object) -> None:
        nonlocal reads_tensors
        if kind == "input":
            # What only allocates memory reads sizes, and "returns" whatever is in that memory.
            reads_tensors = any(v is not None and len(v.shape) > 1 for v in values)
        elif reads_tensors:
            floats = (v for v in values if v is not None and v.dtype in ("float32", "float16"))
            found.extend(np.array(NDArray._wrap(v).numpy(), copy=True) for v in floats)  # noqa: SLF001

    async def load(folder: str) -> Any:  # noqa: ANN401 - coreai's
        model = await AIModel.load(folder)
        numbers = [
            each["odixId"]
            for record in json.loads(model._debug_infos)  # noqa: SLF001
            for each in record["operations"]
            if "odixId" in each
        ]
        wanted = [CompileIdentifiers(number) for number in numbers]
        logger = IntermediateLogger(wanted, note, is_enabled=True)
        return model.load_function(main, intermediate_logger=logger)

    with tempfile.TemporaryDirectory(suffix=".aimodelx") as folder, asyncio.Runner() as runner:
        # `executable` compiles without the numbers that the logger asks for.
        asset = AIModelAsset.load(file)
        asset._write_odix(Path(folder), enable_debug_info=True)  # noqa: SLF001
        run_function(runner, runner.run(load(folder)), feeds, {})
    return found


def inner_parting(
    logged: Iterable[np.ndarray], known: Mapping[str, np.ndarray], wrong: np.ndarray
) -> InnerParting | None:
    """Return where the steps before a wrong value part from the known ones, by name; None if none
    of them has a counterpart, or the wrong value is not among them.
    """
    values = [each for each in logged if each.size >= _LEAST_ELEMENTS]
    end = next((i for i, each in enumerate(values) if _same(each, wrong)), None)
    if end is None:
        return None
    agreed: tuple[int, str] | None = None
    for place in range(end - 1, -1, -1):
        name = next((n for n, other in known.items() if _same(values[place], other)), None)
        if name is not None:
            agreed = place, name
            break
    if agreed is None or agreed[0] + 1 > end:
        return None
    after = _telling(values[agreed[0] + 1 : end + 1], known)
    return InnerParting(agreed[1], after.shape, float(after.min()), float(after.max()))


def _telling(values: list[np.ndarray], known: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the first of some values that is larger than all that torch computes, such as what a
    mask adds; otherwise the first.
    """
    finite = (each[np.isfinite(each)] for each in known.values() if each.dtype.kind == "f")
    largest = max((float(np.abs(each).max()) for each in finite if each.size), default=0.0)
    return next((each for each in values if float(np.abs(each).max()) > largest), values[0])


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.size != expected.size or expected.dtype.kind != "f":
        return False
    return bool(relative_error(found.reshape(-1), expected.reshape(-1)) <= CLOSE)
