"""Runs a model at given axis sizes and records what it accepts and returns."""

import abc
import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract, DimensionError, TensorSpec
from convkit.protocol.messages import Sample
from convkit.protocol.numpy_dtypes import dtype_name
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError
from convkit.worker.metrics.tensor_metrics import as_float64
from convkit.worker.runtime_interface.sessions import RunFailedError

if TYPE_CHECKING:
    import onnxruntime

# Seconds after which one run is stopped, and elements of an input that is not tried.
_LONGEST_RUN = 8.0
# Seconds after the time is up in which what the draft rests on may still run.
_GRACE = 15.0
_MOST_ELEMENTS = 1 << 27
# Seconds between two messages about what is tried.
_SAY_SECONDS = 1.5
_EXAMPLE = Draw("example")


@dataclasses.dataclass(frozen=True)
class SizeTrial:
    """One run: the outputs' shapes, or why there are none. `seconds` is how long it took. `is_nan`:
    it ended with NaN.
    """

    shapes: Mapping[str, tuple[int, ...]] | None
    reason: str = ""
    seconds: float = 0.0
    is_nan: bool = False

    @property
    def worked(self) -> bool:
        return self.shapes is not None

    @property
    def is_empty(self) -> bool:
        """Return True if an output has no elements."""
        return any(0 in shape for shape in (self.shapes or {}).values())


class Trials(abc.ABC):
    """A model that is run under a deadline. The same sizes and samples are tried once."""

    def __init__(
        self,
        seconds: float,
        facts: ModelFacts | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`progress` receives what is tried every few seconds."""
        self._progress = progress
        self._said = time.monotonic()
        # Runs that were left out because the time was up.
        self.left_out = 0
        self._facts = facts or ModelFacts()
        self._clock = clock
        self._end = clock() + seconds
        # Of a run that worked.
        self.longest = 0.0
        self._known: dict[object, SizeTrial] = {}
        self._answers: dict[object, bool | None] = {}
        self._exactly = False
        self._accepts_nan = False
        self.saw_nan = False
        # The largest magnitude of each output in any run.
        self.magnitudes: dict[str, float] = {}
        # The largest magnitude of each output in the run in which that is least.
        self.faintest: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Return True if the time for trials is up."""
        return self._clock() > self._end

    def has_time(self, runs: int) -> bool:
        """Return True if there is time for so many runs, each as long as the longest so far."""
        return self._clock() + runs * self.longest <= self._end

    @property
    def runs(self) -> int:
        """Return how many different sizes and samples were tried."""
        return len(self._known)

    def say(self, doing: str, *, now: bool = False) -> None:
        """Report what is tried, unless that was done a moment ago; `now`: always."""
        if now or time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._progress(doing)

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Inside the block, run a while longer than there is time, and on values even if a slow
        model otherwise runs only on shapes.
        """
        self._exactly = True
        try:
            yield
        finally:
            self._exactly = False

    def run(
        self,
        inputs: tuple[TensorSpec, ...],
        samples: Mapping[str, Sample],
        sizes: Mapping[str, int],
        draw: Draw = _EXAMPLE,
        *,
        regardless: bool = False,
    ) -> SizeTrial:
        """Run the model once, `regardless` of the time left; a result with NaN counts as none,
        unless NaN is accepted.
        """
        try:
            shapes = tuple(spec.concrete_shape(sizes) for spec in inputs)
        except DimensionError as error:
            return SizeTrial(None, str(error))
        kinds = tuple((name, sample) for name, sample in samples.items())
        padding = tuple(spec.padding for spec in inputs)
        key = (shapes, kinds, padding, draw.case, draw.padding, draw.extreme, self._on_values)
        if key not in self._known:
            late = self._clock() - self._end
            if late > (_GRACE if self._exactly else 0.0) and not regardless:
                self.left_out += 1
                return SizeTrial(None, "there was no time left to try it")
            at = ", ".join(f"{axis} {size}" for axis, size in sizes.items())
            self.say(
                f"trying {'sizes' if at else 'values'}, run {self.runs + 1}: {at}".rstrip(": ")
            )
            self._known[key] = found = self._run(inputs, samples, sizes, shapes, draw)
            if found.worked:
                self.longest = max(self.longest, found.seconds)
        return self._known[key]

    @property
    def _on_values(self) -> bool:
        """Return True if runs are on values where others would be on shapes alone."""
        return False

    def _run(
        self,
        inputs: tuple[TensorSpec, ...],
        samples: Mapping[str, Sample],
        sizes: Mapping[str, int],
        shapes: tuple[tuple[int, ...], ...],
        draw: Draw,
    ) -> SizeTrial:
        if any(min(shape, default=1) < 0 for shape in shapes):
            return SizeTrial(None, "an axis would have a negative size")
        if max(int(np.prod(shape, dtype=np.float64)) for shape in shapes) > _MOST_ELEMENTS:
            return SizeTrial(None, "an input would be too large to try")
        return self._on_shapes(inputs, shapes) or self._drawn_and_fed(inputs, samples, sizes, draw)

    def _on_shapes(
        self, inputs: tuple[TensorSpec, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> SizeTrial | None:
        """Return what a run on shapes alone shows; None if only one on values can tell."""
        del inputs, shapes
        return None

    def _drawn_and_fed(
        self,
        inputs: tuple[TensorSpec, ...],
        samples: Mapping[str, Sample],
        sizes: Mapping[str, int],
        draw: Draw,
    ) -> SizeTrial:
        try:
            feeds = self.drawn(inputs, samples, sizes, draw)
        except (StageFailedError, DimensionError) as error:  # a length of an axis that is not there
            return SizeTrial(None, str(error))
        return self._feed(feeds)

    def drawn(
        self,
        inputs: tuple[TensorSpec, ...],
        samples: Mapping[str, Sample],
        sizes: Mapping[str, int],
        draw: Draw,
    ) -> dict[str, np.ndarray]:
        """Return the inputs of a run; raises StageFailedError for a sample that cannot be drawn."""
        return draw_inputs(
            Contract(inputs, (), ()), samples, sizes, 0, facts=self._facts, draw=draw
        )

    def remembered(self, key: object, find: Callable[[], bool | None]) -> bool | None:
        """Return what was found out under a key before, or finds it out."""
        if key not in self._answers:
            self._answers[key] = find()
        return self._answers[key]

    def accept_nan(self) -> None:
        """From now on, count results with NaN: no sample that was tried avoids them."""
        self._accepts_nan = True
        self._known.clear()

    @abc.abstractmethod
    def values(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Return the outputs' values, regardless of the time; None if the model does not run."""

    @property
    def moves_weights(self) -> bool:
        """True if `values_nearby` moves weights."""
        return False

    def values_nearby(
        self, feeds: Mapping[str, np.ndarray], case: str
    ) -> dict[str, np.ndarray] | None:
        """Return the outputs' values, with weights a few units in the last place off if they can
        be moved: by other units in each case.
        """
        del case
        return self.values(feeds)

    @abc.abstractmethod
    def _feed(self, feeds: Mapping[str, np.ndarray]) -> SizeTrial:
        """Run the model on arrays by name."""

    def _note_magnitude(self, name: str, value: np.ndarray) -> None:
        if value.dtype.kind != "f" or not value.size:
            return
        largest = float(np.where(np.isfinite(value), np.abs(value), 0.0).max())
        self.magnitudes[name] = max(largest, self.magnitudes.get(name, 0.0))
        self.faintest[name] = min(largest, self.faintest.get(name, largest))


class FileTrials(Trials):
    """An ONNX file's session."""

    def __init__(
        self, path: Path, seconds: float, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        from convkit.worker.graph.graph_session import open_graph
        from convkit.worker.graph.session_values import needs_bits

        super().__init__(seconds, progress=progress)
        self._said = -math.inf  # loading the file may have taken seconds
        self._opened = open_graph(path)
        self._session = self._opened.raw
        self._as_bits = needs_bits(self._session)
        self._outputs = [argument.name for argument in self._session.get_outputs()]

    def outputs(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs by name, regardless of the time; raises RunFailedError."""
        found = self._opened.run(feeds)
        for name, value in found.items():
            self._note_magnitude(name, value)
        return found

    def values(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """Return the outputs' values, regardless of the time; None if the file does not run."""
        try:
            return self._opened.run(feeds)
        except RunFailedError:
            return None

    def _feed(self, feeds: Mapping[str, np.ndarray]) -> SizeTrial:
        import onnxruntime

        from convkit.worker.graph.graph_session import as_array
        from convkit.worker.graph.session_values import run_session

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        timer = threading.Timer(_LONGEST_RUN, _stop, [options])
        timer.start()
        started = time.monotonic()
        try:
            returned = run_session(
                self._session, self._outputs, feeds, options, as_bits=self._as_bits
            )
            values = [_readable(as_array(value)) for value in returned]
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions share no base class
            return SizeTrial(None, str(error), time.monotonic() - started)
        finally:
            timer.cancel()
        seconds = time.monotonic() - started
        shapes = {}
        for name, value in zip(self._outputs, values, strict=True):
            if value.dtype.kind == "f" and np.isnan(value).any() and not self._accepts_nan:
                self.saw_nan = True
                return SizeTrial(None, f"output {name!r} has NaN", seconds, is_nan=True)
            shapes[name] = value.shape
        for name, value in zip(self._outputs, values, strict=True):
            self._note_magnitude(name, value)
        return SizeTrial(shapes, "", seconds)


def has_nan(outputs: Mapping[str, np.ndarray]) -> bool:
    """Return True if an output of fractions has NaN."""
    return any(each.dtype.kind == "f" and np.isnan(each).any() for each in outputs.values())


def has_infinity(outputs: Mapping[str, np.ndarray]) -> bool:
    """Return True if an output of fractions has an infinite number."""
    return any(each.dtype.kind == "f" and np.isinf(each).any() for each in outputs.values())


def _readable(values: np.ndarray) -> np.ndarray:
    """Return bfloat16 as float32, which numpy can compute with; other values as they are."""
    if dtype_name(values.dtype) == "bfloat16":
        return as_float64(values).astype(np.float32)
    return values


def _stop(options: "onnxruntime.RunOptions") -> None:
    options.terminate = True
