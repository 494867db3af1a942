"""Says what in a module holds the size of its batch, if it runs with one size only: a number in its
code, a buffer or weight, or at least the line that refuses another.
"""

import contextlib
import linecache
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from convkit.protocol.contract import DimensionError
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.literal_sizes import SizeNumber, SizeNumbers
from convkit.worker.original.source_lines import relative_source
from convkit.worker.survey.inputs.survey_messages import held_by
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.module_trials import ModuleTrials, tensors_of
from convkit.worker.survey.torch_module.named_outputs import named_outputs

# The largest number in a module's code that is tried as the size of its batch, and how many are.
_LARGEST, _MOST = 64, 4

Arguments = Mapping[str, Any]


def held_batches(loaded: LoadedModel, feeds: Mapping[str, np.ndarray]) -> list[int]:
    """Return numbers that a module may hold as the size of its batch: those that its code passes to
    functions that take sizes, also in a call that fails, and the first sizes of its buffers.
    """
    noting = SizeNumbers(loaded.source_root)
    _works(loaded, tensors_of(feeds), noting)
    found = [number.value for number in noting.found]
    found += [size for buffer in loaded.module.buffers() for size in buffer.shape[:2]]
    return [size for size in dict.fromkeys(found) if 2 < size <= _LARGEST][:_MOST]


def why_fixed(loaded: LoadedModel, start: Start, trials: ModuleTrials) -> str:
    """Return what holds the size of the batch, with which alone the module runs."""
    size = start.sizes[BATCH]
    for other in (size + 1, 2 * size):
        sizes = {**start.sizes, BATCH: other}
        given = at_full_length(start.inputs, start.samples, sizes)
        try:
            feeds = trials.drawn(start.inputs, given, sizes, Draw("example"))
        except (StageFailedError, DimensionError):
            continue
        arguments = trials.arguments(tensors_of(feeds))
        for number in _numbers(loaded, arguments, size):
            if _works(loaded, arguments, SizeNumbers(loaded.source_root, number, other, least=1)):
                return held_by(size, _quoted(loaded, number.source), number.function)
        if (name := _holding_tensor(loaded, arguments, size, other)) is not None:
            return held_by(size, f"the buffer or weight {name!r}", "")
        if line := _refusing_line(loaded, arguments):
            return held_by(size, "", "", refused=_quoted(loaded, line))
    return held_by(size, "", "")


def _numbers(loaded: LoadedModel, arguments: Arguments, size: int) -> Iterator[SizeNumber]:
    noting = SizeNumbers(loaded.source_root, least=1)
    _works(loaded, arguments, noting)
    yield from (number for number in noting.found if number.value == size)


def _works(loaded: LoadedModel, arguments: Arguments, numbers: SizeNumbers) -> bool:
    """Return True if a module runs and returns tensors."""
    with contextlib.suppress(Exception), torch.no_grad(), numbers:
        return bool(named_outputs(loaded.module(**arguments), nested=True))
    return False


def _holding_tensor(loaded: LoadedModel, arguments: Arguments, size: int, other: int) -> str | None:
    """Return the name of a buffer or weight that has the batch's size, with which repeated to the
    other size the module runs.
    """
    own = (*loaded.module.named_buffers(), *loaded.module.named_parameters())
    for name, held in own:
        for place, length in enumerate(held.shape):
            if length != size:
                continue
            index = torch.arange(other) % size
            larger = {name: held.detach().index_select(place, index)}
            with contextlib.suppress(Exception), torch.no_grad():
                torch.func.functional_call(loaded.module, larger, (), dict(arguments))
                return name
    return None


def _refusing_line(loaded: LoadedModel, arguments: Arguments) -> str | None:
    """Return the line of the module's own code at which it fails."""
    try:
        with torch.no_grad():
            loaded.module(**arguments)
    except Exception as error:  # noqa: BLE001 - a model may raise anything
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            line = relative_source(frame.filename, frame.lineno or 0, loaded.source_root)
            if line is not None and not frame.filename.endswith("held_batch.py"):
                return line
    return None


def _quoted(loaded: LoadedModel, source: str) -> str:
    """Return a line of the module's code with its text, if that is found."""
    file, _, line = source.rpartition(":")
    text = linecache.getline(f"{loaded.source_root or '.'}/{file}", int(line)).strip()
    return f"{source} (`{text}`)" if text else source
