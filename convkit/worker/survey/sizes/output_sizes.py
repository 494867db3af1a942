"""The sizes of a file's outputs in terms of its axes, worked out from runs."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.axis_sizes import (
    largest_sizes,
    off_typical_sizes,
    probe_sizes,
    smallest_sizes,
)
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.rows_from_data import CountedRows, count_rows
from convkit.worker.survey.sizes.size_formulas import fit_dimension
from convkit.worker.survey.sizes.size_trials import Trials

# Runs at random sizes, in addition to those of the cases.
_RANDOM_RUNS = 6
# The last has the most detections, as a rule: verification draws it, too.
DRAWS = (
    *(Draw(case) for case in ("example", "other", "third", "fourth")),
    Draw("extreme", extreme=True),
)
# With fewer sizes of an axis than this, all that matters is tried anyway.
_FEW = 4


class OutputSizes:
    """Fits the outputs' sizes to inputs and axes, which may be narrowed between two fits."""

    def __init__(
        self,
        stated: Sequence[TensorSpec],
        trials: Trials,
        samples: Callable[[Mapping[str, int]], Mapping[str, Sample]],
        *,
        may_follow_values: bool = True,
    ) -> None:
        """`samples` returns those of the inputs at some sizes of axes. `may_follow_values`: the
        outputs' sizes may depend on the values of the inputs.
        """
        self._may_follow_values = may_follow_values
        self._stated = stated
        self._trials = trials
        self._samples = samples

    def fit(
        self, inputs: tuple[TensorSpec, ...], axes: tuple[Axis, ...], counted: CountedRows
    ) -> tuple[tuple[TensorSpec, ...], str | None]:
        """Return the outputs in terms of the axes, and the first that has no such terms."""
        runs = list(self._runs(inputs, axes))
        if not runs:
            raise StageFailedError(
                "the model runs at the first sizes that were tried, and at none of those around"
                " them: give it inputs that it accepts (--example, or a recipe of your own)"
            )
        hints = [size for spec in inputs for size in spec.shape]
        names = [axis.name for axis in axes]
        outputs, failed = [], None
        for spec in self._stated:
            ranks = {len(shapes[spec.name]) for _, shapes in runs}
            shape: list[Dimension] = []
            for place in range(max(ranks)):
                seen = [
                    (sizes, shapes[spec.name][place])
                    for sizes, shapes in runs
                    if place < len(shapes[spec.name])
                ]
                name = counted.names.get((spec.name, place))
                fitted = name or fit_dimension(seen, names, hints)
                if (fitted is None or len(ranks) > 1) and spec.name not in counted.unstable:
                    failed = failed or spec.name
                shape.append(fitted if fitted is not None else seen[0][1])
            outputs.append(dataclasses.replace(spec, shape=tuple(shape)))
        return tuple(outputs), failed

    def _runs(
        self, inputs: tuple[TensorSpec, ...], axes: tuple[Axis, ...]
    ) -> Iterator[tuple[Mapping[str, int], Mapping[str, tuple[int, ...]]]]:
        """Yield sizes and the outputs' shapes at them: those of the cases, and random ones."""
        contract = Contract(inputs, (), axes)
        typical = contract.typical_sizes()
        wanted: list[Mapping[str, int]] = [
            typical,
            smallest_sizes(contract),
            largest_sizes(contract),
            probe_sizes(contract),
        ]
        if (off := off_typical_sizes(contract)) is not None:
            wanted.append(off)
        draw = random.Random(0)  # noqa: S311 - sizes to try, no secret
        for axis in axes:
            around = (axis.min, axis.typical + 1, axis.typical + 2, axis.max - 1, axis.max)
            wanted += [{**typical, axis.name: n} for n in around if axis.min <= n <= axis.max]
        wanted += [
            {axis.name: draw.randint(axis.min, axis.max) for axis in axes}
            for _ in range(_RANDOM_RUNS)
        ]
        wanted += [sizes for axis in axes for sizes in self._edge(inputs, typical, axis)]
        for sizes in wanted:
            given = at_full_length(inputs, self._samples(sizes), sizes)
            # The first, at typical sizes, is what all is told from if there is no time for more.
            trial = self._trials.run(inputs, given, sizes, regardless=sizes is typical)
            if trial.shapes is not None:
                yield sizes, trial.shapes

    def _edge(
        self, inputs: tuple[TensorSpec, ...], typical: Mapping[str, int], axis: Axis
    ) -> list[Mapping[str, int]]:
        """Return two neighboring sizes of an axis between which an output's size changes: they show
        where a stride or window begins. None if every size changes it.
        """

        def shapes(count: int) -> Mapping[str, tuple[int, ...]] | None:
            sizes = {**typical, axis.name: count}
            return self._trials.run(
                inputs, at_full_length(inputs, self._samples(sizes), sizes), sizes
            ).shapes

        low, high = axis.typical, axis.max
        if high - low < _FEW or shapes(low) != shapes(low + 1) or shapes(low) == shapes(high):
            return []
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if shapes(middle) == shapes(low) else (low, middle)
        return [{**typical, axis.name: count} for count in (low, high)]

    def data_dependent(self, inputs: tuple[TensorSpec, ...], axes: tuple[Axis, ...]) -> CountedRows:
        """Return which sizes of the outputs depend on the inputs' values."""
        contract = Contract(inputs, (), axes)
        if not self._may_follow_values:
            # The largest values that verification draws: the tolerances come from them.
            sizes = contract.typical_sizes()
            self._trials.run(
                inputs, at_full_length(inputs, self._samples(sizes), sizes), sizes, DRAWS[-1]
            )
            return CountedRows((), {}, frozenset())
        alike = []
        # In few elements, different values may well give as many rows.
        for sizes in (contract.typical_sizes(), largest_sizes(contract)):
            given = at_full_length(inputs, self._samples(sizes), sizes)
            found = [self._trials.run(inputs, given, sizes, draw).shapes for draw in DRAWS]
            alike.append([shapes for shapes in found if shapes])
        return count_rows(self._stated, alike, [axis.name for axis in axes])
