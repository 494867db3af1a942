"""Fixes axes whose further elements the model never reads: it takes the first two numbers of an
input, and runs with any input that has at least two.
"""

import dataclasses

import numpy as np

from convkit.protocol.contract import Axis, dimension_axes, dimension_size, names_with_axis
from convkit.protocol.messages import SurveyResult
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.sizes.axis_renaming import in_samples, substituted
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.size_trials import Trials

# Columns with a meaning each are few; rows of data may go unread for other reasons.
_MOST = 16
_DRAWS = (Draw("unread"), Draw("unread, again"))


def without_unread(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result without the axes of one input and no output beyond whose typical size nothing
    is read: such an axis has that size.
    """
    for axis in found.contract.axes:
        shapes = [(spec.name, spec.shape) for spec in found.contract.inputs]
        outputs = [(spec.name, spec.shape) for spec in found.contract.outputs]
        holders = names_with_axis(shapes, axis.name)
        if (
            axis.name == BATCH
            or len(holders) != 1
            or names_with_axis(outputs, axis.name)
            or not axis.min < axis.max
            or axis.typical > _MOST
        ):
            continue
        if _is_unread(found, axis, holders[0], trials):
            found = _fixed(found, axis.name, axis.typical)
    return found


def _is_unread(found: SurveyResult, axis: Axis, name: str, trials: Trials) -> bool:
    contract = found.contract
    spec = next(each for each in contract.inputs if each.name == name)
    places = [place for place, size in enumerate(spec.shape) if axis.name in dimension_axes(size)]
    if len(places) != 1:
        return False
    typical = contract.typical_sizes()
    sizes = {**typical, axis.name: axis.max}
    kept = dimension_size(spec.shape[places[0]], typical)
    samples = at_full_length(contract.inputs, found.samples, sizes)
    for draw in _DRAWS:
        if not trials.has_time(2):
            return False
        feeds = trials.drawn(contract.inputs, samples, sizes, draw)
        other = trials.drawn(contract.inputs, samples, sizes, Draw(f"{draw.case}, other"))[name]
        first = (slice(None),) * places[0] + (slice(kept),)
        changed = other.copy()
        changed[first] = feeds[name][first]
        if np.array_equal(changed, feeds[name]):
            return False  # its sample allows no other values
        usual, moved = trials.values(feeds), trials.values({**feeds, name: changed})
        if usual is None or moved is None:
            return False
        if not all(np.array_equal(usual[each], moved[each], equal_nan=True) for each in usual):
            return False
    return True


def _fixed(found: SurveyResult, axis: str, size: int) -> SurveyResult:
    contract = dataclasses.replace(
        found.contract,
        inputs=tuple(substituted(spec, {axis: size}) for spec in found.contract.inputs),
        axes=tuple(each for each in found.contract.axes if each.name != axis),
    )
    samples = {name: in_samples(each, {axis: size}) for name, each in found.samples.items()}
    return dataclasses.replace(found, contract=contract, samples=samples)
