"""Whole numbers that point to positions, such as each word's first token: drawn at random, some
point to padding, and what is there then moves what is real.
"""

import dataclasses
import functools

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Layout
from convkit.worker.cases.case import Case, CaseInputs, Feeds
from convkit.worker.cases.invariance_cases import contract_input, position_dimensions
from convkit.worker.cases.values.padding_masks import real_positions
from convkit.worker.cases.values.sampled_values import sample_for


def pointing_inputs(made_from: CaseInputs, layout: Layout, base: Case) -> list[TensorSpec]:
    """Return the inputs of whole numbers, themselves without a mask's positions, whose values in a
    case may all be such positions, from -1 on.
    """
    if not layout.masks:
        return []
    feeds = base.inputs()
    positions = feeds[layout.masks[0]].shape[-1]
    return [
        spec
        for spec in made_from.contract.inputs
        if spec.name not in layout.masks
        and sample_for(spec, made_from.samples).kind == "integers"
        and not position_dimensions(spec, made_from.contract, layout)
        and feeds[spec.name].size
        and -1 <= feeds[spec.name].min() <= feeds[spec.name].max() < positions
    ]


def pointing_to_real(
    case: Case, pointing: list[TensorSpec], made_from: CaseInputs, layout: Layout
) -> Case:
    """Return a case whose inputs point to positions that its mask calls real, in each row."""
    mask = contract_input(made_from.contract, layout.masks[0])

    def inputs() -> Feeds:
        feeds = case.inputs()
        live = np.asarray(real_positions(feeds[mask.name], mask.padding))
        shape = (live.shape[0] if live.ndim > 1 else 1, -1, live.shape[-1])
        rows = np.asarray(live.reshape(shape).any(axis=1))
        return feeds | {spec.name: _within(feeds[spec.name], rows) for spec in pointing}

    return dataclasses.replace(case, inputs=functools.cache(inputs))


def _within(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return values that count along each row's real positions; negative ones stay."""
    found = values.copy()
    by_row = values.shape[:1] == rows.shape[:1]
    for number, row in enumerate(found) if by_row else [(0, found)]:
        real = np.flatnonzero(rows[number] if by_row else rows.all(axis=0))
        if real.size:
            row[...] = np.where(row < 0, row, real[row % real.size])
    return found
