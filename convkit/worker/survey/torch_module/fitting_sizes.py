"""Sizes with which a torch module runs on one guess of its inputs: those that its source states,
otherwise usual ones, and what an error says would fit.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import torch

from convkit.protocol.contract import TensorSpec
from convkit.worker.survey.inputs.survey_messages import sizes_from_source
from convkit.worker.survey.inputs.written_shapes import WrittenShape, kept_sizes, stated_sizes
from convkit.worker.survey.sizes.batch_axis import BATCH
from convkit.worker.survey.sizes.first_working_sizes import Start
from convkit.worker.survey.sizes.flattened_sizes import (
    SolvedSizes,
    at_odds,
    rounder,
    solved_in_turn,
)
from convkit.worker.survey.torch_module.input_candidates import ROLES, SIZES
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# The usual sizes that are tried for one choice of shapes.
_MOST_SIZES = 60
# Readings of what the source states of sizes, and of the other axes' sizes for each.
_MOST_STATED, _MOST_BESIDE_STATED = 6, 12
# Of a run with sizes that are a mere guess.
_BEARABLE_SECONDS = 1.0
# Axes that are solved for in turn, and from how many of the usual sizes.
_MOST_SOLVED, _MOST_STARTS = 3, 2
# What other sizes do not mend: elements of the wrong type, too few axes, numbers beyond a table.
_OF_VALUES = re.compile(
    r"index out of range|must be long|scalar type|same dtype|not implemented for"
    r"|tensors used as indices|values to unpack|too many indices|must be a tensor"
)
# What a size does that leaves windows nothing.
_TOO_SMALL = re.compile(r"Kernel size can't be greater|[Oo]utput size is too small")


def fitting(
    start: Start,
    module: torch.nn.Module,
    written: Sequence[WrittenShape],
    trials: ModuleTrials,
    batches: Sequence[int] = (),
) -> tuple[Start | None, str]:
    """Return a start with the first sizes with which the model runs; None, and why the first did
    not, if there are none. `written` is what the source states of shapes, `batches` are sizes of
    the batch in place of the usual ones.
    """
    stated = _as_stated(start, written, module, trials, batches)
    if stated.sizes:
        return stated, ""
    sizes, why = _fitting_sizes(start, trials, batches)
    if sizes is None:
        return None, why
    return dataclasses.replace(start, sizes=_bearable(start, sizes, trials)), ""


def _as_stated(
    start: Start,
    written: Sequence[WrittenShape],
    module: torch.nn.Module,
    trials: ModuleTrials,
    batches: Sequence[int],
) -> Start:
    """Return a start with sizes that the source states, if the model runs with them; otherwise the
    same without sizes.
    """
    read = itertools.islice(stated_sizes(start.inputs, written), _MOST_STATED)
    for stated in itertools.chain(read, kept_sizes(start.inputs, module)):
        chosen = dataclasses.replace(start, inputs=stated.inputs)
        beside = usual_sizes(stated.inputs, batches, stated.sizes)
        for sizes in itertools.islice(beside, _MOST_BESIDE_STATED):
            if trials.run(chosen.inputs, chosen.samples, sizes).worked:
                note = sizes_from_source(stated.sizes, stated.sources)
                return dataclasses.replace(chosen, sizes=sizes, notes=(*start.notes, note))
    return start


def _bearable(start: Start, sizes: Mapping[str, int], trials: ModuleTrials) -> Mapping[str, int]:
    """Return smaller sides of pictures if a run takes long with the usual ones, which nobody asked
    for: drafts and verifications consist of dozens of runs.
    """
    sides = [axis for axis in sizes if ROLES.get(axis) == "side"]
    if not sides or trials.run(start.inputs, start.samples, sizes).seconds <= _BEARABLE_SECONDS:
        return sizes
    smaller = sorted((s for s in SIZES["side"] if s < max(sizes[a] for a in sides)), reverse=True)
    for side in smaller:
        other = {**sizes, **dict.fromkeys(sides, side)}
        with trials.exactly():  # on shapes alone, no run takes long
            trial = trials.run(start.inputs, start.samples, other)
        if trial.worked:
            sizes = other
            if trial.seconds <= _BEARABLE_SECONDS:
                break
    return sizes


def _fitting_sizes(
    start: Start, trials: ModuleTrials, batches: Sequence[int] = ()
) -> tuple[Mapping[str, int] | None, str]:
    """Return the first sizes with which the model runs; None, and why the first did not, if there
    are none.
    """
    reason = ""
    axes = {size for spec in start.inputs for size in spec.shape if isinstance(size, str)}
    free = sorted(axes - {"batch"})
    solved = SolvedSizes(start.inputs, free[0]) if len(free) == 1 else None

    def fails(sizes: Mapping[str, int]) -> str | None:
        trial = trials.run(start.inputs, start.samples, sizes)
        return None if trial.worked else trial.reason

    fits: set[int | None] = set()  # batches with which the axis fits, and something else does not
    for number, usual in enumerate(
        itertools.islice(usual_sizes(start.inputs, batches), _MOST_SIZES)
    ):
        sizes: dict[str, int] | None = usual if usual.get(BATCH) not in fits else None
        while sizes is not None:
            trial = trials.run(start.inputs, start.samples, sizes)
            if trial.worked:
                return sizes if sizes is usual else rounder(sizes, free, fails), ""
            reason = reason or trial.reason
            if _OF_VALUES.search(trial.reason):
                return None, reason
            if _TOO_SMALL.search(trial.reason):
                break  # a guess from far away, which says nothing of others
            if sizes is not usual and not at_odds(trial.reason):
                fits.add(usual.get(BATCH))
                break
            sizes = solved.next_sizes(sizes, trial.reason) if solved is not None else None
        if not 1 < len(free) <= _MOST_SOLVED or number >= _MOST_STARTS:
            continue
        if (found := solved_in_turn(start.inputs, free, usual, fails)) is not None:
            return rounder(found, free, fails), ""
    return None, reason


def usual_sizes(
    inputs: Sequence[TensorSpec],
    batches: Sequence[int] = (),
    known: Mapping[str, int] | None = None,
) -> Iterator[dict[str, int]]:
    known = known or {}
    axes = list(
        dict.fromkeys(size for spec in inputs for size in spec.shape if isinstance(size, str))
    )
    # The batch varies slowest: if two rows fail, one rarely helps.
    lists = [
        (known[axis],)
        if axis in known
        else batches
        if axis == BATCH and batches
        else SIZES[ROLES[axis]]
        for axis in axes
    ]
    for sizes in itertools.product(*lists):
        yield dict(zip(axes, sizes, strict=True))
