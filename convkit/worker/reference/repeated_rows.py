"""Runs the original on three rows of its largest batch, and repeats their outputs.

Most models compute each row by itself, so the original's other rows cost much and prove nothing.
That it does is proven first: with other rows beside a row, at other places of the batch, and with
another number of rows. The built model still runs the whole case, and all its rows are judged.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds
from convkit.worker.cases.decision_sizes import Decisions, Sizes, outcomes
from convkit.worker.cases.invariance_cases import row_axis, row_dimension, take_rows
from convkit.worker.cases.values.sampled_values import Draw, generator, integer_range, sample_for
from convkit.worker.metrics.tensor_metrics import as_float64
from convkit.worker.runtime_interface.sessions import RunFailedError

Run = Callable[[Feeds], Feeds]

# The rows of the two runs: row 1 has another neighbor in the second.
_FIRST, _SECOND = (0, 1), (2, 1)
_ROWS = len(_FIRST)
_DIFFERENT = len({*_FIRST, *_SECOND})
# Below this, all rows cost hardly more than the two runs.
_LEAST_ROWS = 8
# Of the largest magnitude: kernels for another number of rows add in another order (about 1e-6).
_NOISE = 1e-5


@dataclasses.dataclass(frozen=True)
class FewRows:
    """How the rows of a case along `axis` are repeated: `order` says which of the first three each
    of them is.
    """

    made_from: CaseInputs
    case: Case
    axis: str
    order: tuple[int, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that cost as much as both runs together."""
        return self.case.sizes | {self.axis: 2 * _ROWS}

    @property
    def repeated(self) -> Case:
        """The case with repeated rows."""
        return dataclasses.replace(
            self.case,
            description=f"{self.case.description}; three different rows, repeated",
            inputs=lambda: self._inputs(self.case.inputs(), self.order),
        )

    def outputs(self, run: Run) -> Feeds | None:
        """Return the original's outputs for the repeated rows.

        None if its rows depend on one another, on their place or on their number, or if it rejects
        fewer of them.
        """
        feeds, sizes = self.case.inputs(), self.case.sizes
        try:
            if not self._ignores_the_batch(run):
                return None
            first, second = (self._run(run, feeds, sizes, rows) for rows in (_FIRST, _SECOND))
        except RunFailedError:
            return None
        if not _alike(self._outputs(first, (1,)), self._outputs(second, (1,))):
            return None
        third = self._outputs(second, (0,))
        return {
            spec.name: first[spec.name]
            if (place := row_dimension(spec, self.axis)) is None
            else np.take(
                np.concatenate([first[spec.name], third[spec.name]], place), self.order, place
            )
            for spec in self.made_from.contract.outputs
        }

    def _ignores_the_batch(self, run: Run) -> bool:
        """Return whether rows are the same at every place of the whole batch, and in a small one,
        all other axes at their smallest.
        """
        count = len(self.order)
        sizes = smallest_sizes(self.made_from.contract) | {self.axis: count}
        feeds = self.made_from.draw(sizes, Draw(self.case.name))
        together = self._run(run, feeds, sizes, range(count))
        # Every row moves by one: rows that are treated differently have neighbors that are, too.
        others = ((*range(1, count), 0), _FIRST)
        return all(
            _alike(self._outputs(together, rows), self._run(run, feeds, sizes, rows))
            for rows in others
        )

    def _run(self, run: Run, feeds: Feeds, sizes: Sizes, rows: Sequence[int]) -> Feeds:
        """Run the original on some rows; raises RunFailedError, also for undeclared shapes."""
        outputs = run(self._inputs(feeds, rows))
        sizes = {**sizes, self.axis: len(rows)}
        if not all(
            spec.fits(outputs[spec.name].shape, sizes) for spec in self.made_from.contract.outputs
        ):
            raise RunFailedError("an output does not have its declared shape")
        return outputs

    def _inputs(self, feeds: Feeds, rows: Sequence[int]) -> Feeds:
        return take_rows(self.made_from.contract.inputs, self.axis, feeds, rows)

    def _outputs(self, outputs: Feeds, rows: Sequence[int]) -> Feeds:
        return take_rows(self.made_from.contract.outputs, self.axis, outputs, rows)


def few_rows(made_from: CaseInputs, case: Case, decisions: Decisions) -> FewRows | None:
    """Return how to run the original on few rows of a case; None if it has few anyway, or if they
    cannot be told apart.

    `decisions`: the original must take the same branches for few rows and for all.
    """
    contract = made_from.contract
    axis = row_axis(contract)
    if isinstance(axis, str) or contract.data_axes or axis.min > _ROWS:
        return None
    rows = case.sizes[axis.name]
    if rows < _LEAST_ROWS or any(
        _needs_all_rows(made_from, spec, case.sizes, axis.name) for spec in contract.inputs
    ):
        return None
    both = [("all", case.sizes), ("few", case.sizes | {axis.name: _ROWS})]
    for decision in decisions.sizes:
        found = outcomes(decision, both)
        if len(found) < len(both) or len(set(found.values())) > 1:
            return None
    drawn = generator(made_from.seed, case.name, "rows").integers(0, _DIFFERENT, size=rows)
    order = (0, 1, 2, *map(int, drawn[_DIFFERENT:]))
    return FewRows(made_from, case, axis.name, order)


def _needs_all_rows(made_from: CaseInputs, spec: TensorSpec, sizes: Sizes, axis: str) -> bool:
    """Return whether all rows hold something that three of them lack: the user's own values, or
    every legal whole number (each row of an embedding).
    """
    sample = sample_for(spec, made_from.samples)
    if sample.kind not in ("token_ids", "integers"):
        return sample.kind == "file" and axis in spec.shape
    low, high = integer_range(spec, sample, made_from.facts)
    everything = math.prod(spec.concrete_shape(sizes))
    few = math.prod(spec.concrete_shape({**sizes, axis: _DIFFERENT}))
    return few < high - low <= everything


def _alike(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> bool:
    """Return whether tensors are equal but for noise. NaN and infinity never are."""
    return all(_same(values, found[name]) for name, values in expected.items())


def _same(expected: np.ndarray, found: np.ndarray) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.dtype.kind in "biu":
        return np.array_equal(expected, found)
    one, other = as_float64(expected), as_float64(found)
    with np.errstate(invalid="ignore"):  # infinity less infinity: not alike
        error = np.abs(one - other).max(initial=0.0)
    return bool(error <= _NOISE * np.abs(one).max(initial=0.0))
