"""The contract of an ONNX file, with the sizes it accepts, worked out from its graph and by running
it.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from convkit.cases.sizes import largest_sizes, off_typical_sizes, smallest_sizes
from convkit.models.graph.contract import graph_contract
from convkit.models.graph.preparation import inlined
from convkit.models.survey.axes import OpenInputs, name_axes
from convkit.models.survey.counted_rows import CountedRows
from convkit.models.survey.inputs import Guess, guess_sample, is_length
from convkit.models.survey.outputs import OutputSizes
from convkit.models.survey.ranges import Range, find_range
from convkit.models.survey.start import (
    Start,
    at_full_length,
    each_mode,
    find_start,
    longest_dimension,
    start_sizes,
)
from convkit.models.survey.trials import Trials
from convkit.models.survey.usage import rounds_activations, usage_of
from convkit.models.survey.wording import (
    data_axis,
    data_dependent,
    fixed_axis,
    near_zero,
    no_start,
    out_of_time,
    refused,
    steps_of_axis,
)
from convkit.tensors import Axis, Contract, Dimension, TensorSpec, dimension_axes, dimension_size
from convkit.worker.protocol import Sample, SurveyResult
from convkit.worker.sessions import ModelRefusedError

# Below this, an output of drawn inputs is rounding noise around zero.
_NEAR_ZERO = 1e-6

Change = Callable[[Range], Range]


def survey(model: ir.Model, path: Path, seconds: float) -> SurveyResult:
    """Return a file's inputs and outputs. `seconds` limits the time spent running it; 0: it is not
    run.
    """
    stated = graph_contract(model)
    graph = inlined(model).graph
    values = {value.name: value for value in graph.inputs}
    usages = {spec.name: usage_of(values[spec.name]) for spec in stated.inputs}
    variants = [name_axes(stated.inputs, usages, tied=tied) for tied in (True, False)]
    guesses = {spec.name: guess_sample(spec, usages[spec.name]) for spec in variants[0].inputs}
    notes = [f"only you can know {guess.doubt}" for guess in guesses.values() if guess.doubt]
    if seconds <= 0:
        return _unrun(stated, variants[0], guesses, notes)
    try:
        trials = Trials(path, seconds)
    except ModelRefusedError as error:
        return _unrun(stated, variants[0], guesses, [*notes, refused(str(error))])
    starts = (find_start(variant, guesses, trials) for variant in variants)
    tried = []
    for start in starts:
        tried.append(start)
        if not start.reason:
            break
    start = tried[-1]
    if start.reason:
        return _unrun(stated, variants[0], guesses, [*notes, no_start(tried[0].reason)])
    opened = variants[len(tried) - 1]
    found = _Survey(stated, opened, start, trials, notes).run()
    return dataclasses.replace(found, quantized=rounds_activations(graph))


def described(model: ir.Model, contract: Contract) -> SurveyResult:
    """Return the contract stored in a file, with samples for its inputs."""
    values = {value.name: value for value in inlined(model).graph.inputs}
    samples = {
        spec.name: guess_sample(spec, usage_of(values[spec.name])).sample
        for spec in contract.inputs
        if spec.name in values
    }
    return SurveyResult(contract, samples, ran=False)


def _unrun(
    stated: Contract, opened: OpenInputs, guesses: Mapping[str, Guess], notes: Sequence[str]
) -> SurveyResult:
    """Return what the graph alone reveals; sizes are guesses."""
    sizes = next(start_sizes(opened))
    axes = tuple(Axis(name, size, size, size) for name, size in sizes.items())
    known = set(sizes)

    def dimension(place: int, size: Dimension) -> Dimension:
        if isinstance(size, int):
            return max(size, 1)
        used = dimension_axes(size) if size.isidentifier() else ()
        if used and set(used) <= known:
            return size
        return "batch" if place == 0 and "batch" in known else 1

    outputs = tuple(
        dataclasses.replace(
            spec, shape=tuple(dimension(place, size) for place, size in enumerate(spec.shape))
        )
        for spec in stated.outputs
    )
    samples = {name: guess.sample for name, guess in guesses.items()}
    return SurveyResult(
        Contract(opened.inputs, outputs, axes), samples, ran=False, notes=tuple(notes)
    )


class _Survey:
    """The state of a survey after the file first ran: running it at other sizes reveals the
    rest.
    """

    def __init__(
        self,
        stated: Contract,
        opened: OpenInputs,
        start: Start,
        trials: Trials,
        notes: Sequence[str],
    ) -> None:
        self._roles = dict(opened.roles)
        self._named = opened.inputs
        self._samples = dict(start.samples)
        self._base = dict(start.sizes)
        self._trials = trials
        self._sizes = OutputSizes(stated.outputs, trials, self._samples)
        self._notes = list(notes)
        self._ranges: dict[str, Range] = {}

    def run(self) -> SurveyResult:
        self._tie_stuck_axes()
        for axis in list(self._base):
            self._ranges[axis] = self._range(axis)
        self._settle_together()
        outputs, counted = self._fitted_outputs()
        inputs, axes = self._shapes()
        if self._trials.is_over:
            self._notes.append(out_of_time())
        for axis, found in self._ranges.items():
            if self._trials.is_over:
                break
            if found.is_fixed and found.size(found.low) != 1:
                self._notes.append(fixed_axis(axis, found.size(found.low)))
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
        )

    def _works(self, inputs: tuple[TensorSpec, ...], sizes: Mapping[str, int]) -> bool:
        """Return True if the file runs at some sizes, in each of its modes."""
        return all(
            self._trials.run(inputs, at_full_length(inputs, mode, sizes), sizes).worked
            for mode in each_mode(self._samples)
        )

    def _range(self, axis: str) -> Range:
        def works(size: int) -> bool:
            return size >= 1 and self._works(self._named, {**self._base, axis: size})

        return find_range(self._base[axis], self._roles[axis], works)

    def _tie_stuck_axes(self) -> None:
        """Make axes one that the file accepts at equal sizes only."""
        stuck = [axis for axis in self._base if self._range(axis).is_fixed]
        for place, axis in enumerate(stuck):
            for other in stuck[place + 1 :]:
                size = self._base[axis]
                together = {**self._base, axis: size + 1, other: size + 1}
                even = {**self._base, axis: 2 * size, other: 2 * size}
                if self._base.get(other) != size or not any(
                    self._works(self._named, sizes) for sizes in (together, even)
                ):
                    continue
                self._named = tuple(_substituted(spec, {other: axis}) for spec in self._named)
                del self._base[other]
                del self._roles[other]

    def _shapes(self) -> tuple[tuple[TensorSpec, ...], tuple[Axis, ...]]:
        """Return the inputs and axes as the ranges have them."""
        words = {
            axis: found.dimension(_axis_name(axis, found)) for axis, found in self._ranges.items()
        }
        axes = [
            Axis(_axis_name(axis, found), found.low, found.typical, found.high)
            for axis, found in self._ranges.items()
            if not found.is_fixed
        ]
        return tuple(_substituted(spec, words) for spec in self._named), tuple(axes)

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
            self._ranges[axis] = dataclasses.replace(
                before, low=before.typical, high=before.typical
            )
            if self._sizes.fit(*self._shapes(), counted)[1] is None:
                return
            self._ranges[axis] = before
        axis = varying[-1]
        self._ranges[axis] = dataclasses.replace(
            self._ranges[axis], low=self._ranges[axis].typical, high=self._ranges[axis].typical
        )

    def _final_samples(self, contract: Contract) -> dict[str, Sample]:
        """Return the samples; a length is at most the smallest size of its axis."""
        whole = longest_dimension(contract.inputs)
        if whole is None:
            return self._samples
        least = dimension_size(whole, smallest_sizes(contract))
        lengths = Sample("integers", (max(1, least - least // 4), least + 1))
        return {
            spec.name: lengths if is_length(spec) else self._samples[spec.name]
            for spec in contract.inputs
        }


def _axis_name(axis: str, found: Range) -> str:
    return axis if found.step == 1 else f"{axis}_div_{found.step}"


def _substituted(spec: TensorSpec, words: Mapping[str, Dimension]) -> TensorSpec:
    """Return a tensor with other names for axes, including in expressions."""
    return dataclasses.replace(spec, shape=tuple(_in_words(size, words) for size in spec.shape))


def _in_words(size: Dimension, words: Mapping[str, Dimension]) -> Dimension:
    if isinstance(size, int):
        return size
    if size in words:
        return words[size]
    text = re.sub(r"[A-Za-z_]\w*", lambda match: f"({words.get(match[0], match[0])})", size)
    return text if dimension_axes(text) else dimension_size(text, {})
