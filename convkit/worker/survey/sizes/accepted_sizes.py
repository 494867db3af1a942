"""Works out the sizes that a model accepts and returns, by running it."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from convkit.protocol.contract import (
    Axis,
    Contract,
    Dimension,
    TensorSpec,
    dimension_axes,
    dimension_size,
)
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.axis_sizes import (
    largest_sizes,
    off_typical_sizes,
    probe_sizes,
    smallest_sizes,
)
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.inputs.axis_ranges import Range, find_range, narrowed
from convkit.worker.survey.inputs.input_guesses import is_length
from convkit.worker.survey.inputs.survey_messages import (
    data_axis,
    data_dependent,
    decides,
    failed_node,
    fixed_axis,
    near_zero,
    only_some_values,
    other_sizes,
    out_of_time,
    steps_of_axis,
    which_values,
)
from convkit.worker.survey.sizes.axis_renaming import axes_of, in_samples, substituted
from convkit.worker.survey.sizes.first_working_sizes import (
    Start,
    at_full_length,
    each_mode,
    longest_dimension,
)
from convkit.worker.survey.sizes.output_sizes import DRAWS, OutputSizes
from convkit.worker.survey.sizes.rows_from_data import CountedRows
from convkit.worker.survey.sizes.size_deciding_values import (
    deciding_booleans,
    held_values,
    may_decide,
)
from convkit.worker.survey.sizes.size_trials import Trials

# Below this, an output of drawn inputs is rounding noise around zero.
_NEAR_ZERO = 1e-6
_PADDINGS = (Draw("example"), Draw("example", "right"), Draw("example", "ragged"))
# Axes that may be empty: at the first call there is nothing in a cache.
_PAST = re.compile(r"past|cache", re.IGNORECASE)

Change = Callable[[Range], Range]


class Sizing:
    """The state of a survey after the model first ran: running it at other sizes reveals the
    rest.
    """

    def __init__(
        self,
        stated: Sequence[TensorSpec],
        roles: Mapping[str, str],
        start: Start,
        trials: Trials,
        notes: Sequence[str],
        *,
        expects_fixed: bool = False,
        may_follow_values: bool = True,
    ) -> None:
        """`expects_fixed`: that an axis has a single size is not news. `may_follow_values`: the
        outputs' sizes may depend on the values of the inputs.
        """
        self._expects_fixed = expects_fixed
        self._stated = stated
        self._roles = dict(roles)
        self._named = start.inputs
        self._samples = dict(start.samples)
        self._base = dict(start.sizes)
        self._trials = trials
        self._sizes = OutputSizes(
            stated, trials, self._samples_at, may_follow_values=may_follow_values
        )
        self._notes = list(notes)
        self._findings: list[Finding] = []
        self._ranges: dict[str, Range] = {}
        # Axes with sizes that there was no time to try.
        self._hurried: list[str] = []

    def run(self) -> SurveyResult:
        self._hold_deciding_values()
        self._tie_stuck_axes()
        self._tie_rows()
        noted = len(self._notes)
        outputs, counted = self._measured()
        while self._tie_stated_axis(outputs):
            del self._notes[noted:]
            outputs, counted = self._measured()
        inputs, axes = self._shapes()
        if self._trials.is_over:
            self._notes.append(out_of_time(self._trials.runs, self._hurried))
        for axis, found in self._ranges.items():
            if self._trials.is_over:
                break
            if found.is_fixed:
                if not self._expects_fixed:
                    self._note_fixed(axis, found.size(found.low))
            elif found.step > 1:
                self._notes.append(steps_of_axis(axis, found))
        contract = Contract(inputs, outputs, axes, counted.axes)
        self._notes += [
            near_zero(name) for name, most in self._trials.magnitudes.items() if most < _NEAR_ZERO
        ]
        return SurveyResult(
            contract,
            self._final_samples(contract),
            ran=True,
            notes=tuple(self._notes),
            magnitudes=self._trials.magnitudes,
            faintest=self._trials.faintest,
            findings=tuple(self._findings),
        )

    def _note_fixed(self, axis: str, size: int) -> None:
        """Say that a file declares an axis open and runs with one size, and which node refuses."""
        node = name = why = ""
        for other in (size + 1, 2 * size, size - 1):
            sizes = {**self._base, axis: other}
            given = at_full_length(self._named, self._samples, sizes)
            trial = self._trials.run(self._named, given, sizes) if other > 0 else None
            failed = failed_node(trial.reason) if trial is not None else None
            if failed is not None:
                node, name, why = failed
                break
        text = fixed_axis(axis, size, node, why)
        self._notes.append(text)
        place = Place(tensor=axis, node=name or None)
        self._findings.append(Finding("C116", text, place, {"axis": axis, "size": size}))

    def _hold_deciding_values(self) -> None:
        """Give a single value to bools that decide a size, to inputs that the model refuses some
        values of, and to those that decide several sizes of an output.
        """
        refused = self._refused_values()
        dtypes = {spec.name: spec.dtype for spec in self._named}
        for name, sample in refused.items():
            if dtypes[name] != "bool":
                self._hold(name, sample, only_some_values(name, sample.numbers[0]))
        booleans = deciding_booleans(self._named, self._samples, self._base, self._trials)
        for name, (sample, outputs) in booleans.items():
            self._hold(name, sample, decides(name, sample.numbers[0], outputs))
        for name in refused.keys() - booleans.keys():
            if dtypes[name] == "bool":
                self._hold(name, refused[name], only_some_values(name, refused[name].numbers[0]))
        axes = tuple(Axis(name, size, size, size) for name, size in self._base.items())
        counted = self._sizes.data_dependent(self._named, axes)
        if unstated := counted.unstable - {name for name, _ in counted.names}:
            held = self._held_values(self._named)
            for name, sample in held.items():
                self._hold(name, sample, decides(name, sample.numbers[0], sorted(unstated)))

    def _refused_values(self) -> dict[str, Sample]:
        """Return a single value for inputs of fixed shapes if the model refuses some drawn ones."""
        among = [spec for spec in self._named if all(isinstance(size, int) for size in spec.shape)]
        if not any(may_decide(spec, self._samples, self._base) for spec in among):
            return {}
        given = at_full_length(self._named, self._samples, self._base)
        runs = [self._trials.run(self._named, given, self._base, draw) for draw in DRAWS]
        if all(run.worked for run in runs) or self._trials.is_over:
            return {}
        return self._held_values(among)

    def _held_values(self, among: Sequence[TensorSpec]) -> dict[str, Sample]:
        # A size that the file states for an output is likely what such an input decides.
        stated = {size for spec in self._stated for size in spec.shape if isinstance(size, int)}
        return held_values(
            self._named,
            self._samples,
            self._base,
            self._trials,
            DRAWS,
            among=among,
            likely=sorted(stated - {1}, reverse=True),
        )

    def _hold(self, name: str, sample: Sample, why: str) -> None:
        """Give an input a single value, and say why in place of the question that it answers."""
        self._samples[name] = sample
        self._notes = [note for note in self._notes if which_values(name) not in note]
        self._notes.append(why)

    def _measured(self) -> tuple[tuple[TensorSpec, ...], CountedRows]:
        """Find the ranges of all axes; return the outputs in terms of them."""
        found: dict[str, Range] = {}
        self._hurried = []
        for axis in self._batch_first():
            left_out = self._trials.left_out
            found[axis] = self._range(axis)
            if self._trials.left_out > left_out:
                self._hurried.append(axis)
        self._ranges = {axis: found[axis] for axis in self._base}
        with self._trials.exactly():
            self._settle_together()
        return self._fitted_outputs()

    def _batch_first(self) -> list[str]:
        """Return the axes; if the time does not suffice for all, the batch's size is known."""
        return sorted(self._base, key=lambda axis: self._roles[axis] != "batch")

    def _works(self, inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int]) -> bool:
        """Return True if the model runs at some sizes, in each of its modes."""
        return all(
            self._trials.run(inputs, at_full_length(inputs, mode, sizes), sizes).worked
            for mode in each_mode(self._samples_at(sizes))
        )

    def _samples_at(self, sizes: Mapping[str, int]) -> Mapping[str, Sample]:
        """Return the samples at sizes of the axes as they are named now: one that has got a single
        size is none.
        """
        words = self._words()
        return {
            name: each if axes_of(each) <= sizes.keys() else in_samples(each, words)
            for name, each in self._samples.items()
        }

    def _range(self, axis: str) -> Range:
        def works(size: int) -> bool:
            return size >= 1 and self._works(self._named, {**self._base, axis: size})

        found = find_range(self._base[axis], self._roles[axis], works)
        if _PAST.search(axis) and found.step == 1:
            emptied = {**self._base, axis: 0}
            if self._works(self._named, emptied):
                found = dataclasses.replace(found, low=0)
        with self._trials.exactly():
            # Shapes alone do not tell that a table of positions ends.
            if works(found.size(found.high)):
                return found
            return find_range(self._base[axis], self._roles[axis], works)

    def _tie_stuck_axes(self) -> None:
        """Make axes one that the model accepts at equal sizes only."""
        fixed = {axis for axis in self._batch_first() if self._range(axis).is_fixed}
        stuck = [axis for axis in self._base if axis in fixed]
        for place, axis in enumerate(stuck):
            for other in stuck[place + 1 :]:
                if axis not in self._base:
                    break  # it is one with an axis before it
                size = self._base[axis]
                together = {**self._base, axis: size + 1, other: size + 1}
                even = {**self._base, axis: 2 * size, other: 2 * size}
                if self._base.get(other) != size or not any(
                    self._works(self._named, sizes) for sizes in (together, even)
                ):
                    continue
                self._tie(axis, other)

    def _tie_rows(self) -> None:
        """Make axes of rows one that the model accepts at equal sizes, or with one of them 1, which
        counts for all rows.
        """
        rows = [axis for axis, role in self._roles.items() if role == "batch"]
        for axis, other in itertools.combinations(rows, 2):
            if axis not in self._base or other not in self._base:
                continue

            def works(here: int, there: int, pair: tuple[str, str] = (axis, other)) -> bool:
                sizes = {**self._base, pair[0]: here, pair[1]: there}
                return self._works(self._named, sizes)

            if works(2, 2) and works(1, 2) and works(2, 1) and not works(2, 3):
                self._tie(axis, other)

    def _tie(self, axis: str, other: str) -> None:
        """Give the dimensions of one axis to another."""
        self._named = tuple(substituted(spec, {other: axis}) for spec in self._named)
        del self._base[other]
        del self._roles[other]

    def _tie_stated_axis(self, outputs: Sequence[TensorSpec]) -> bool:
        """Replace an axis that the file also gives an output, where it turns out to be arithmetic
        over others: the length of a mask over a cache is past + sequence. Return True if one was.
        """
        for stated, fitted in zip(self._stated, outputs, strict=True):
            for axis, size in zip(stated.shape, fitted.shape, strict=False):
                if not isinstance(size, str) or axis not in self._base or size == axis:
                    continue
                others = {name: least for name, least in self._base.items() if name != axis}
                named = tuple(substituted(spec, {str(axis): size}) for spec in self._named)
                if set(dimension_axes(size)) <= set(others) and self._works(named, others):
                    self._named, self._base = named, others
                    del self._roles[str(axis)]
                    return True
        return False

    def _shapes(self) -> tuple[tuple[TensorSpec, ...], tuple[Axis, ...]]:
        """Return the inputs and axes as the ranges have them."""
        words = self._words()
        axes = [
            Axis(_axis_name(axis, found), found.low, found.typical, found.high)
            for axis, found in self._ranges.items()
            if not found.is_fixed
        ]
        return tuple(substituted(spec, words) for spec in self._named), tuple(axes)

    def _words(self) -> dict[str, Dimension]:
        """Return each axis as the ranges have it: with its step, or its only size."""
        return {
            axis: found.dimension(_axis_name(axis, found)) for axis, found in self._ranges.items()
        }

    def _settle_together(self) -> None:
        """Narrow the ranges until the cases' sizes work, all axes at once."""
        for attempt in range(2 + 2 * len(self._ranges)):
            inputs, axes = self._shapes()
            contract = Contract(inputs, (), axes)
            if not self._works(inputs, smallest_sizes(contract)):
                self._narrow(attempt, lambda found: dataclasses.replace(found, low=found.typical))
            elif not self._works(inputs, largest_sizes(contract)):
                self._narrow(attempt, lambda found: dataclasses.replace(found, high=found.typical))
            elif (off := off_typical_sizes(contract)) and not self._works(inputs, off):
                self._narrow(
                    attempt,
                    lambda found: dataclasses.replace(found, low=found.typical, high=found.typical),
                )
            else:
                return
        # Together nothing but the usual sizes works.
        self._ranges = {
            axis: dataclasses.replace(found, low=found.typical, high=found.typical)
            for axis, found in self._ranges.items()
        }

    def _narrow(self, attempt: int, change: Change) -> None:
        """Narrow the axis whose narrowing helps, otherwise the next that it changes."""
        open_axes = [axis for axis, found in self._ranges.items() if change(found) != found]
        for axis in open_axes:
            before = self._ranges[axis]
            self._ranges[axis] = change(before)
            inputs, axes = self._shapes()
            contract = Contract(inputs, (), axes)
            tried = (smallest_sizes(contract), largest_sizes(contract), off_typical_sizes(contract))
            if all(self._works(inputs, sizes) for sizes in tried if sizes is not None):
                return
            self._ranges[axis] = before
        if open_axes:
            axis = open_axes[attempt % len(open_axes)]
            self._ranges[axis] = change(self._ranges[axis])

    def _fitted_outputs(self) -> tuple[tuple[TensorSpec, ...], CountedRows]:
        """Return the outputs, and those of their axes that come from data; an axis that some
        output's size does not follow becomes fixed.
        """
        counted = self._sizes.data_dependent(*self._shapes())
        for _ in range(len(self._ranges) + 1):
            outputs, failed = self._sizes.fit(*self._shapes(), counted)
            if failed is None:
                break
            varying = [axis for axis, found in self._ranges.items() if not found.is_fixed]
            if not varying:
                break
            self._fix_one(varying, counted)
        self._notes += [data_axis(axis) for axis in counted.axes]
        known = {name for name, _ in counted.names}
        self._notes += [data_dependent(name) for name in sorted(counted.unstable - known)]
        return outputs, counted

    def _fix_one(self, varying: Sequence[str], counted: CountedRows) -> None:
        # The last axes are the likeliest: those of time or space.
        for axis in reversed(varying):
            before = self._ranges[axis]
            for part in narrowed(before):
                self._ranges[axis] = part
                if self._sizes.fit(*self._shapes(), counted)[1] is None:
                    if not part.is_fixed:
                        sizes = (part.size(each) for each in (part.low, part.high))
                        self._notes.append(other_sizes(axis, *sizes))
                    return
            self._ranges[axis] = before
        axis = varying[-1]
        self._ranges[axis] = dataclasses.replace(
            self._ranges[axis], low=self._ranges[axis].typical, high=self._ranges[axis].typical
        )

    def _final_samples(self, contract: Contract) -> dict[str, Sample]:
        """Return the samples; a length is at most the size of its axis."""
        words = self._words()
        samples = {name: in_samples(each, words) for name, each in self._samples.items()}
        whole = longest_dimension(contract.inputs)
        known = any(sample.along is not None for sample in samples.values())
        if whole is None or known or not any(map(is_length, contract.inputs)):
            return samples
        least = dimension_size(whole, smallest_sizes(contract))
        lengths = Sample("integers", (max(1, least - least // 4), least + 1))
        for each in (Sample("lengths", along=whole), Sample("lengths", (1.0,), along=whole)):
            if self._pads_rows(contract, each):
                lengths = each
                break
        return {
            spec.name: lengths if is_length(spec) else samples[spec.name]
            for spec in contract.inputs
        }

    def _pads_rows(self, contract: Contract, lengths: Sample) -> bool:
        """Return True if rows may be shorter than their axis, and are then padded: the outputs'
        sizes stay.
        """
        drawn = {spec.name: lengths for spec in contract.inputs if is_length(spec)}
        samples = {**self._samples, **drawn}
        for sizes in (contract.typical_sizes(), smallest_sizes(contract), probe_sizes(contract)):
            full, *padded = (
                self._trials.run(contract.inputs, samples, sizes, draw).shapes for draw in _PADDINGS
            )
            if full is None or any(shapes != full for shapes in padded):
                return False
        return True


def _axis_name(axis: str, found: Range) -> str:
    return axis if found.step == 1 else f"{axis}_div_{found.step}"
