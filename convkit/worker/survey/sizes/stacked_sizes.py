"""The sizes of what decoders keep between calls: caches and states of all layers, stacked before
the batch, and masks as long as what was kept and what is new together.
"""

import dataclasses
import itertools
from collections.abc import Mapping

from convkit.protocol.contract import Dimension
from convkit.worker.survey.sizes.axis_renaming import substituted
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.sizes.size_trials import Trials

# (layers, batch, length, width): of more axes, what is an inner length is not known.
_CACHE = 4


def with_stacks(start: Start, example: Mapping[str, tuple[int, ...]], trials: Trials) -> Start:
    """Open the batch of what is stacked before it, and a cache's length, by an example's shapes.

    Returns the start as it is if there is nothing of the kind, or if the model does not run with
    another batch then.
    """
    batch = start.sizes.get(BATCH)
    sizes = dict(start.sizes)
    shapes: dict[str, tuple[Dimension, ...]] = {}
    for name, shape in example.items():
        if batch is None or len(shape) < _CACHE or shape[0] == batch or shape[1] != batch:
            continue
        inner: tuple[Dimension, ...] = shape[2:]
        if len(shape) == _CACHE:
            known = (axis for axis, size in sizes.items() if size == shape[2] and axis != BATCH)
            length = next(known, f"sequence_{len(sizes)}")
            sizes[length] = shape[2]
            inner = (length, shape[3])
        shapes[name] = (shape[0], BATCH, *inner)
    opened = tuple(
        dataclasses.replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in start.inputs
    )
    stacked = dataclasses.replace(start, inputs=opened, sizes=sizes)
    if batch is None or not shapes or not _runs(stacked, {BATCH: batch + 1}, trials):
        return start
    return with_sums(stacked, trials)


def with_sums(start: Start, trials: Trials) -> Start:
    """Write an axis as the sum of two others, where the model runs with no other size of it alone,
    and with others of each of the two: that of a mask over what was kept and what is new.
    """
    lengths = [axis for axis in start.sizes if axis != BATCH]
    for axis in lengths:
        others = [each for each in lengths if each != axis]
        for one, two in itertools.combinations(others, 2):
            size = start.sizes[axis]
            if size != start.sizes[one] + start.sizes[two]:
                continue
            if _runs(start, {axis: size + 1}, trials):
                break
            summed = dataclasses.replace(
                start,
                inputs=tuple(substituted(spec, {axis: f"{one} + {two}"}) for spec in start.inputs),
                sizes={each: size for each, size in start.sizes.items() if each != axis},
            )
            changes = ({each: start.sizes[each] + 2} for each in (one, two))
            if all(_runs(summed, change, trials) for change in changes):
                return with_sums(summed, trials)
    return start


def _runs(start: Start, change: Mapping[str, int], trials: Trials) -> bool:
    sizes = {**start.sizes, **change}
    return trials.run(
        start.inputs, at_full_length(start.inputs, start.samples, sizes), sizes
    ).worked
