"""Narrows the samples of whole numbers to what a model accepts in every position and at every size:
the rows of the smallest table that an input indexes, the nodes of a small graph.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.inputs.survey_messages import divisor, marker
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.sizes.size_trials import Trials, has_infinity, has_nan

_ENDS = Draw("extreme", extreme=True)
# What is left of a range that no table explains: two numbers, the fewest that still differ.
FEW = 2
_NO_VALUES: Mapping[str, np.ndarray] = {}
_NO_NUMBERS: Mapping[str, int] = {}


def within_tables(start: Start, rows: Iterable[int], trials: Trials) -> Start:
    """Return a start whose whole numbers the model accepts up to the ends of their ranges.

    `rows` are those of the model's tables, of which the largest that works is taken. Random numbers
    may happen to be small enough where a table has few rows.
    """
    sizes = sorted({*rows}, reverse=True)
    for spec in start.inputs:
        high = _high(start.samples[spec.name])
        if high is None or _accepts(start, start.samples, trials, spec.name):
            continue
        for size in (each for each in sizes if each < high):
            samples = _below(start.samples, spec, size)
            if _accepts(start, samples, trials, spec.name):
                start = dataclasses.replace(start, samples=samples)
                break
    return start


def within_sizes(start: Start, unknown: Iterable[str], trials: Trials) -> Start:
    """Return a start in which inputs of unknown whole numbers index no more elements than a small
    size has.

    An input whose numbers only fit at the size that was found is an index into something of that
    size: with fewer numbers, the model runs at smaller sizes, too.
    """
    for name in unknown:
        (spec,) = (each for each in start.inputs if each.name == name)
        narrow = _below(start.samples, spec, FEW)
        for axis, size in start.sizes.items():
            small = {**start.sizes, axis: min(size, 2 * FEW)}
            if (
                small != start.sizes
                and not _runs(start, start.samples, small, trials)
                and _runs(start, narrow, small, trials)
            ):
                start = dataclasses.replace(start, samples=narrow)
                break
    return start


def without_markers(
    found: SurveyResult, trials: Trials, example: Mapping[str, np.ndarray] = _NO_VALUES
) -> SurveyResult:
    """Return a result whose categories leave out one that marks what does not count: a model that
    returns NaN for nothing but its lowest number, such as rows of padding alone, and not for
    nothing but the next, as attention does that has nothing to look at. A zero leaves out what is
    divided by: infinity for nothing but zeros, and for nothing but ones none. Where two numbers
    together are NaN, as zero divided by zero, the one that `example` has stays.
    """
    lows = {
        spec.name: int(found.samples[spec.name].numbers[0])
        for spec in found.contract.inputs
        if _high(found.samples[spec.name]) is not None
    }
    usual = {name: low for name, low in lows.items() if name in example and low in example[name]}
    for name in sorted(lows, key=usual.__contains__):
        sample, low = found.samples[name], lows[name]
        if sample.numbers[1] - low <= FEW or sample.held:
            continue
        note = _why_left_out(name, low, found, trials)
        if note is None and (others := {each: usual[each] for each in usual if each != name}):
            note = _why_left_out(name, low, found, trials, others)
        if note is not None:
            narrowed = Sample("integers", (low + 1.0, sample.numbers[1]))
            found = dataclasses.replace(
                found, samples={**found.samples, name: narrowed}, notes=(*found.notes, note)
            )
    return found


def _why_left_out(
    name: str,
    low: int,
    found: SurveyResult,
    trials: Trials,
    others: Mapping[str, int] = _NO_NUMBERS,
) -> str | None:
    """Return why an input is drawn without its lowest number; None if it is not. `others` are
    numbers that other inputs have everywhere.
    """
    if not trials.has_time(2):
        return None
    contract = found.contract
    sizes = {axis.name: axis.min for axis in contract.axes}
    given = at_full_length(contract.inputs, found.samples, sizes)
    feeds = trials.drawn(contract.inputs, given, sizes, _ENDS)

    def returned(number: int) -> dict[str, np.ndarray] | None:
        numbers = {**others, name: number}
        filled = {each: np.full_like(feeds[each], value) for each, value in numbers.items()}
        return trials.values({**feeds, **filled})

    marked, other = returned(low), returned(low + 1)
    if marked is None or other is None or has_nan(other):
        return None
    if low == 0 and has_infinity(marked) and not has_infinity(other):
        return divisor(name, low)
    return marker(name, low) if has_nan(marked) else None


def _high(sample: Sample) -> int | None:
    return int(sample.numbers[1]) if sample.kind == "integers" else None


def _below(samples: Mapping[str, Sample], spec: TensorSpec, high: int) -> dict[str, Sample]:
    sample = samples[spec.name]
    held = tuple(each for each in sample.held if each.value < high)
    return {**samples, spec.name: Sample("integers", (sample.numbers[0], float(high)), held=held)}


def _accepts(start: Start, samples: Mapping[str, Sample], trials: Trials, name: str) -> bool:
    """Return True if the model runs with the ends of the ranges: both, and nothing but the upper
    one, which an input of a single element may not have drawn.
    """
    if samples[name].held:  # nothing but one number may have no meaning
        return _runs(start, samples, start.sizes, trials, _ENDS)
    upper = Sample("one_of", (samples[name].numbers[1] - 1,))
    return _runs(start, samples, start.sizes, trials, _ENDS) and _runs(
        start, {**samples, name: upper}, start.sizes, trials, _ENDS
    )


def _runs(
    start: Start,
    samples: Mapping[str, Sample],
    sizes: Mapping[str, int],
    trials: Trials,
    draw: Draw | None = None,
) -> bool:
    given = at_full_length(start.inputs, samples, sizes)
    with trials.exactly():
        return trials.run(start.inputs, given, sizes, draw or Draw("example")).worked
