"""Narrows the samples of whole numbers to what a model accepts in every position and at every size:
the rows of the smallest table that an input indexes, the nodes of a small graph.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from convkit.cases.samples import Draw
from convkit.models.survey.start import Start, at_full_length
from convkit.models.survey.trials import Trials
from convkit.tensors import TensorSpec
from convkit.worker.protocol import Sample

_ENDS = Draw("extreme", extreme=True)
# What is left of a range that no table explains: two numbers, the fewest that still differ.
_FEW = 2


def within_tables(start: Start, rows: Iterable[int], trials: Trials) -> Start:
    """Return a start whose whole numbers the model accepts up to the ends of their ranges.

    `rows` are those of the model's tables, of which the largest that works is taken. Random numbers
    may happen to be small enough where a table has few rows.
    """
    sizes = sorted({*rows, _FEW}, reverse=True)
    for spec in start.inputs:
        high = _high(start.samples[spec.name])
        if high is None or _accepts(start, start.samples, trials):
            continue
        for size in (each for each in sizes if each < high):
            samples = _below(start.samples, spec, size)
            if _accepts(start, samples, trials):
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
        narrow = _below(start.samples, spec, _FEW)
        for axis, size in start.sizes.items():
            small = {**start.sizes, axis: min(size, 2 * _FEW)}
            if (
                small != start.sizes
                and not _runs(start, start.samples, small, trials)
                and _runs(start, narrow, small, trials)
            ):
                start = dataclasses.replace(start, samples=narrow)
                break
    return start


def _high(sample: Sample) -> int | None:
    return int(sample.numbers[1]) if sample.kind == "integers" else None


def _below(samples: Mapping[str, Sample], spec: TensorSpec, high: int) -> dict[str, Sample]:
    low = samples[spec.name].numbers[0]
    return {**samples, spec.name: Sample("integers", (low, float(high)))}


def _accepts(start: Start, samples: Mapping[str, Sample], trials: Trials) -> bool:
    return _runs(start, samples, start.sizes, trials, _ENDS)


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
