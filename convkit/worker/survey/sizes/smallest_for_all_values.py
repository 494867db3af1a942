"""Raises an axis's smallest size to one at which the model runs with all values of a draft: one
draw at a small size may miss the index that reaches beyond it.
"""

import dataclasses

from convkit.protocol.messages import SurveyResult
from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.size_trials import Trials

_DRAWS = (
    Draw("smallest"),
    Draw("extreme", extreme=True),
    *(Draw(case) for case in ("other", "third", "fourth")),
)


def running_with_all_values(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result whose smallest sizes run with the ends of its values and a few draws, if some
    size up to the typical one does; else the same.
    """
    if all(found.samples[spec.name].kind != "integers" for spec in found.contract.inputs):
        return found
    contract = found.contract
    while not _runs(found, smallest_sizes(contract), trials):
        axes = tuple(
            axis
            if axis.name == BATCH
            else dataclasses.replace(axis, min=min(2 * axis.min, axis.typical))
            for axis in contract.axes
        )
        if axes == contract.axes:
            return found
        contract = dataclasses.replace(contract, axes=axes)
    return dataclasses.replace(found, contract=contract)


def _runs(found: SurveyResult, sizes: dict[str, int], trials: Trials) -> bool:
    samples = at_full_length(found.contract.inputs, found.samples, sizes)
    return all(
        trials.run(found.contract.inputs, samples, sizes, draw).worked
        for draw in _DRAWS
        if trials.has_time(1)
    )
