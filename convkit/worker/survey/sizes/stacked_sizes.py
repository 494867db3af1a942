"""The sizes of what decoders keep between calls: caches and states of all layers, stacked before
the batch, and masks as long as what was kept and what is new together.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from convkit.protocol.contract import Dimension
from convkit.worker.survey.sizes.axis_renaming import substituted
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length, is_mask
from convkit.worker.survey.sizes.size_trials import Trials

# The length's place: (layers, batch, length, width), and (layers, batch, heads, length, width). The
# latter may be a state of any kind.
_LENGTHS = {4: 2, 5: 3}
# Of a state: (layers, batch, width).
_FEWEST_AXES = 3


def with_stacks(start: Start, example: Mapping[str, tuple[int, ...]], trials: Trials) -> Start:
    """Open the batch of what is stacked before it, and a cache's length, by an example's shapes.
    Where as many are stacked as the batch has rows, that is tried if the model runs with no other
    batch otherwise.

    Returns the start as it is if there is nothing of the kind, or if the model does not run with
    another batch then.
    """
    batch = start.sizes.get(BATCH)
    stacked = {
        name: shape
        for name, shape in example.items()
        if len(shape) >= _FEWEST_AXES and shape[1] == batch
    }
    fewer = {name: shape for name, shape in stacked.items() if shape[0] != batch}
    found = _with_stacks(start, fewer, trials)
    is_tried = found is not start or len(fewer) == len(stacked)
    if batch is None or is_tried or _runs(start, {BATCH: batch + 1}, trials):
        return found
    return _with_stacks(start, stacked, trials)


def _with_stacks(start: Start, stacked: Mapping[str, tuple[int, ...]], trials: Trials) -> Start:
    """Return a start in which the batch of these inputs, their second axis, is open."""
    sizes = dict(start.sizes)
    shapes: dict[str, tuple[Dimension, ...]] = {}
    kept: set[str] = set()
    for name, shape in stacked.items():
        opened: list[Dimension] = [shape[0], BATCH, *shape[2:]]
        place = _LENGTHS.get(len(shape))
        if place == min(_LENGTHS.values()) or (place and _is_part(shape[place], start)):
            known = (each for each, size in sizes.items() if size == shape[place] and each != BATCH)
            length = next(known, f"sequence_{len(sizes)}")
            sizes[length] = shape[place]
            opened[place] = length
            kept.add(length)
        shapes[name] = tuple(opened)
    inputs = tuple(
        dataclasses.replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in start.inputs
    )
    opened_start = dataclasses.replace(start, inputs=inputs, sizes=sizes)
    if not shapes or not _runs(opened_start, {BATCH: sizes[BATCH] + 1}, trials):
        return start
    return with_sums(opened_start, trials, kept)


def _is_part(length: int, start: Start) -> bool:
    """Say whether another axis is as long as this one and a further one together: that of a mask,
    over what was kept in a cache and what is new.
    """
    others = [size for axis, size in start.sizes.items() if axis != BATCH]
    return any(length + each in others for each in others)


def with_sums(start: Start, trials: Trials, kept: AbstractSet[str] = frozenset()) -> Start:
    """Write an axis as the sum of two others, where the model runs with no other size of it alone,
    and with others of each of the two: that of a mask over what was kept and what is new. A mask
    over what was `kept` may be cut or filled up without a word: it is such a sum even if the model
    runs with other sizes.
    """
    masks = {spec.shape[-1] for spec in start.inputs if spec.shape and is_mask(spec, start.samples)}
    lengths = [axis for axis in start.sizes if axis != BATCH]
    for axis in lengths:
        others = [each for each in lengths if each != axis]
        for one, two in itertools.combinations(others, 2):
            size = start.sizes[axis]
            if size != start.sizes[one] + start.sizes[two]:
                continue
            is_of_kept = axis in masks and not kept.isdisjoint((one, two))
            if not is_of_kept and _runs(start, {axis: size + 1}, trials):
                break
            summed = dataclasses.replace(
                start,
                inputs=tuple(substituted(spec, {axis: f"{one} + {two}"}) for spec in start.inputs),
                sizes={each: size for each, size in start.sizes.items() if each != axis},
            )
            changes = ({each: start.sizes[each] + 2} for each in (one, two))
            if all(_runs(summed, change, trials) for change in changes):
                return with_sums(summed, trials, kept)
    return start


def _runs(start: Start, change: Mapping[str, int], trials: Trials) -> bool:
    sizes = {**start.sizes, **change}
    return trials.run(
        start.inputs, at_full_length(start.inputs, start.samples, sizes), sizes
    ).worked
