"""Finds inputs of a module whose lengths differ, such as the two texts of a translation model."""

import dataclasses
import itertools
from collections.abc import Iterator

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.survey.sizes.first_working_sizes import Start, is_mask
from convkit.worker.survey.sizes.size_trials import Trials

# Inputs of one length, at most, among which groups are looked for.
_MOST_INPUTS = 6
# A single element is repeated for all of the others (broadcasting), whatever their number.
_LEAST = 3


def untied(start: Start, trials: Trials) -> Start:
    """Return a start in which inputs that may differ in length have axes of their own.

    The smallest groups with which the model still runs, whether they are the shorter or the longer
    ones, are split off: an index may be shorter than what it reads from, and never longer. A mask
    goes with what it masks. The batch stays one axis.
    """
    for axis in [name for name in start.sizes if name != "batch"]:
        split: Start | None = start
        while split is not None:
            start = split
            split = next(_splits(start, axis, trials), None)
    return start


def _splits(start: Start, axis: str, trials: Trials) -> Iterator[Start]:
    """Yield starts in which some of the inputs along an axis, without the first, have another."""
    first, *others = [spec.name for spec in start.inputs if axis in spec.shape] or [""]
    if not others or len(others) >= _MOST_INPUTS or start.sizes[axis] < _LEAST:
        return
    number = next(n for n in itertools.count(2) if f"{axis}_{n}" not in start.sizes)
    name, masks = f"{axis}_{number}", {s.name for s in start.inputs if is_mask(s, start.samples)}
    whole = start.sizes[axis]
    part = max(whole // 2, 2)
    sizes = {**start.sizes, name: part}
    reverse = {**start.sizes, axis: part, name: whole}
    for count in range(1, len(others) + 1):
        for group in itertools.combinations(others, count):
            if masks.issuperset(group) or masks.issuperset({first, *others}.difference(group)):
                continue
            inputs = tuple(
                _renamed(spec, axis, name) if spec.name in group else spec for spec in start.inputs
            )
            samples = _lengths_of(start, group, axis, name)
            if all(trials.run(inputs, samples, each).worked for each in (sizes, reverse)):
                yield Start(inputs, sizes, samples)


def _lengths_of(start: Start, group: tuple[str, ...], axis: str, name: str) -> dict[str, Sample]:
    """Return samples in which lengths that are named after an input of the group, as query_length
    after query, are those of the other axis.
    """
    return {
        each: dataclasses.replace(sample, along=name)
        if sample.along == axis and each.startswith(group)
        else sample
        for each, sample in start.samples.items()
    }


def _renamed(spec: TensorSpec, axis: str, name: str) -> TensorSpec:
    return dataclasses.replace(
        spec, shape=tuple(name if size == axis else size for size in spec.shape)
    )
