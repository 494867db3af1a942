"""Cases that must match another case: a row alone, more padding, different values where a mask
hides them.

Each is derived from one small base case, whose rows have different lengths if there is a mask.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Axis, Contract, Dimension, TensorSpec, dimension_axes
from convkit.protocol.messages import InvarianceCheck, Layout, OmittedCase, Sample
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.input_probes import other_values
from convkit.worker.cases.values.padding_masks import mask_values, real_positions
from convkit.worker.cases.values.sampled_values import RANGED, Draw, Padding, sample_for

BASE = "invariance"
AGAIN = "invariance:again"
ALONE = "invariance:alone"
PADDED = "invariance:padded"
MASKED = "invariance:masked-values"

CHECKS: dict[str, InvarianceCheck] = {
    AGAIN: "determinism",
    ALONE: "batch",
    PADDED: "padding",
    MASKED: "masked-values",
}

# The row that is also run alone: not the first, whose mask a broken broadcast applies to all.
ROW = 1

# Small: three rows suffice for every relevant shape, and attention is dense over a dozen positions.
_ROWS = 3
_POSITIONS = 12
_PADDING = 4

# Values that may be replaced at padding; positions and constants are part of an input's meaning.
_FREE = (*RANGED, "file")

NO_MASK = "no input has sample: padding_mask"


def find_layout(
    contract: Contract, samples: Mapping[str, Sample]
) -> tuple[Layout, list[OmittedCase]]:
    """Return the axes of rows and padding, and the cases that cannot be built, with the reason."""
    omitted = []
    rows = row_axis(contract)
    if isinstance(rows, str):
        omitted.append(OmittedCase(ALONE, rows, applies=False))
    masks = tuple(
        spec.name
        for spec in contract.inputs
        if spec.shape and sample_for(spec, samples).kind == "padding_mask"
    )
    layout = Layout(None if isinstance(rows, str) else rows.name, masks)
    if not masks:
        omitted += [OmittedCase(name, NO_MASK, applies=False) for name in (PADDED, MASKED)]
    elif not lengthened_axes(contract, layout):
        last = contract_input(contract, masks[0]).shape[-1]
        omitted.append(
            OmittedCase(
                PADDED,
                f"the positions of {masks[0]!r} ({last}) are not an axis that can grow",
                applies=False,
            )
        )
    return layout, omitted


def row_axis(contract: Contract) -> Axis | str:
    """Return the axis that leads every input and occurs in some output; otherwise, why rows cannot
    be distinguished.

    One-dimensional inputs (positions shared by all rows) need not have it.
    """
    leading = {spec.shape[0] for spec in contract.inputs if len(spec.shape) > 1}
    leading = leading or {spec.shape[0] for spec in contract.inputs if spec.shape}
    axis = next((axis for axis in contract.axes if leading == {axis.name}), None)
    if axis is None:
        return "the inputs do not share a first axis, so there are no rows"
    if axis.max < 2:
        return f"the axis {axis.name!r} never has two rows"
    for spec in (*contract.inputs, *contract.outputs):
        mentions = [dimension for dimension in spec.shape if axis.name in dimension_axes(dimension)]
        if mentions not in ([], [axis.name]):
            return (
                f"{spec.name!r} does not have one row for each of {axis.name!r}"
                f" ({', '.join(map(str, mentions))})"
            )
    if not any(axis.name in spec.shape for spec in contract.outputs):
        return f"no output has the axis {axis.name!r}"
    return axis


def contract_input(contract: Contract, name: str) -> TensorSpec:
    """Return an input's specification by name; raises KeyError."""
    return {spec.name: spec for spec in contract.inputs}[name]


def lengthened_axes(contract: Contract, layout: Layout) -> list[Axis]:
    """Return the axes that masks mark padding along and that can grow: axes of the contract, in no
    arithmetic.
    """
    wanted = {contract_input(contract, mask).shape[-1] for mask in layout.masks}
    computed = {
        name
        for spec in (*contract.inputs, *contract.outputs)
        for dimension in spec.shape
        for name in dimension_axes(dimension)
        if name != dimension
    }
    return [
        axis
        for axis in contract.axes
        if axis.name in wanted and axis.name not in computed and axis.min < axis.max
    ]


def base_sizes(contract: Contract, layout: Layout, others: Mapping[str, int]) -> dict[str, int]:
    """Return the base case's sizes: few rows and positions, the other axes as in `others`."""
    sizes = dict(others)
    if layout.rows is not None:
        axis = contract.axis(layout.rows)
        sizes[axis.name] = max(axis.min, min(axis.max, _ROWS))
    for axis in lengthened_axes(contract, layout):
        sizes[axis.name] = max(axis.min, _longest(axis) - _PADDING)
    return sizes


def _longest(axis: Axis) -> int:
    return min(axis.max, max(_POSITIONS, axis.min + _PADDING))


def base_case(made_from: CaseInputs, layout: Layout, sizes: dict[str, int]) -> Case:
    """Return the base case: rows of different lengths if there is a mask."""
    one_row = (made_from.mask_rows(sizes) or (2, 0))[0] < 2
    # A single row is only padded if no more padding can be added to it.
    padding: Padding = (
        "right" if one_row and not lengthened_axes(made_from.contract, layout) else "ragged"
    )
    description = f"the base of the invariance checks ({sizes_text(sizes)})"
    return Case(
        BASE,
        description,
        sizes,
        lambda: made_from.draw(sizes, Draw(BASE, padding)),
        kind="invariance",
    )


def build_variants(
    made_from: CaseInputs, layout: Layout, base: Case
) -> tuple[list[Case], list[OmittedCase]]:
    """Return the cases that must match `base` (`masked-values`: `padded`, if it exists)."""
    variants: list[Case] = []
    omitted: list[OmittedCase] = []
    if layout.rows is not None:
        variants.append(_alone(made_from.contract, base, made_from.contract.axis(layout.rows)))
    if not layout.masks:
        return variants, omitted
    before = base
    if axes := lengthened_axes(made_from.contract, layout):
        before = _padded(made_from, layout, base, axes)
        variants.append(before)
    hidden = _free_inputs(made_from, layout)
    if any(position_dimensions(spec, made_from.contract, layout) for spec in hidden):
        variants.append(_masked_values(made_from, layout, before, hidden))
    else:
        reason = "no other input has values at a mask's positions"
        omitted.append(OmittedCase(MASKED, reason, applies=False))
    return variants, omitted


def _alone(contract: Contract, base: Case, axis: Axis) -> Case:
    """Return the case with one row, repeated if the axis must be longer."""

    def inputs() -> Feeds:
        feeds = base.inputs()
        return {
            spec.name: (
                np.repeat(np.take(feeds[spec.name], [ROW], place), axis.min, place)
                if (place := row_dimension(spec, axis.name)) is not None
                else feeds[spec.name]
            )
            for spec in contract.inputs
        }

    sizes = base.sizes | {axis.name: axis.min}
    times = f", {axis.min} times" if axis.min > 1 else ""
    description = f"row {ROW} of {base.name!r} alone{times} ({sizes_text(sizes)})"
    return Case(ALONE, description, sizes, inputs, kind="invariance", base=base.name)


def _padded(made_from: CaseInputs, layout: Layout, base: Case, axes: Sequence[Axis]) -> Case:
    """Return the case with the rows of `base` and more padding on the right."""
    sizes = base.sizes | {axis.name: _longest(axis) for axis in axes}

    def inputs() -> Feeds:
        feeds, longer = base.inputs(), made_from.draw(sizes, Draw(PADDED))
        for spec in made_from.contract.inputs:
            values = feeds[spec.name]
            if spec.name in layout.masks:
                sample = sample_for(spec, made_from.samples)
                longer[spec.name] = _more_padding(spec, sample, values, longer[spec.name].shape)
            else:
                extended = longer[spec.name].copy()
                extended[tuple(map(slice, values.shape))] = values
                longer[spec.name] = extended
        return longer | _with_pad_tokens(made_from, layout, longer)

    more = ", ".join(
        f"{sizes[axis.name] - base.sizes[axis.name]} more along {axis.name}" for axis in axes
    )
    description = f"{base.name!r} with more padding: {more} ({sizes_text(sizes)})"
    return Case(PADDED, description, sizes, inputs, kind="invariance", base=base.name)


def _more_padding(
    spec: TensorSpec, sample: Sample, mask: np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """Return a mask that marks all new positions as padding.

    If the mask has an axis of queries, new queries see what the last one sees: a query that sees
    nothing may be NaN.
    """
    widths = [(0, new - old) for new, old in zip(shape, mask.shape, strict=True)]
    longer = np.pad(mask, widths, mode="edge")
    hidden = np.zeros(1, dtype=bool)
    longer[..., mask.shape[-1] :] = mask_values(hidden, spec.padding, sample.numbers)
    return longer


def _with_pad_tokens(made_from: CaseInputs, layout: Layout, feeds: Feeds) -> Feeds:
    pad = made_from.facts.pad_token
    if pad is None:
        return {}
    return {
        spec.name: (
            np.where(
                real_elements(spec, made_from.contract, layout, feeds, feeds[spec.name].shape),
                feeds[spec.name],
                pad,
            ).astype(feeds[spec.name].dtype)
        )
        for spec in made_from.contract.inputs
        if sample_for(spec, made_from.samples).kind == "token_ids"
    }


def _free_inputs(made_from: CaseInputs, layout: Layout) -> list[TensorSpec]:
    return [
        spec
        for spec in made_from.contract.inputs
        if spec.name not in layout.masks and sample_for(spec, made_from.samples).kind in _FREE
    ]


def _masked_values(
    made_from: CaseInputs, layout: Layout, base: Case, hidden: Sequence[TensorSpec]
) -> Case:
    """Return the case with other values wherever a mask marks padding."""

    def inputs() -> Feeds:
        feeds = base.inputs()
        others = {}
        for spec in hidden:
            values = feeds[spec.name]
            real = real_elements(spec, made_from.contract, layout, feeds, values.shape)
            others[spec.name] = np.where(
                real, values, other_values(made_from, spec, values)
            ).astype(values.dtype)
        return feeds | others

    description = f"{base.name!r} with other values at padding ({sizes_text(base.sizes)})"
    return Case(MASKED, description, base.sizes, inputs, kind="invariance", base=base.name)


def row_dimension(spec: TensorSpec, rows: str) -> int | None:
    """Return the index of a tensor's row dimension, if it has one."""
    return spec.shape.index(rows) if rows in spec.shape else None


def take_rows(
    specs: Sequence[TensorSpec], axis: str, tensors: Mapping[str, np.ndarray], rows: Sequence[int]
) -> Feeds:
    """Return some rows of each tensor, along `axis`; tensors without rows as they are."""
    return {
        spec.name: tensors[spec.name]
        if (place := row_dimension(spec, axis)) is None
        else np.take(tensors[spec.name], rows, place)
        for spec in specs
    }


def position_dimensions(
    spec: TensorSpec, contract: Contract, layout: Layout
) -> list[tuple[str, int]]:
    """Return the dimensions of a tensor covered by masks: pairs of a mask's name and the
    dimension's index.

    A symbolic dimension is recognized anywhere. A number could mean anything, so a mask of fixed
    length covers only tensors whose shape begins with the mask's.
    """
    found = []
    for name in layout.masks:
        shape = contract_input(contract, name).shape
        if isinstance(shape[-1], str):
            found += [
                (name, place)
                for place, dimension in enumerate(spec.shape)
                if dimension == shape[-1]
            ]
        elif spec.shape[: len(shape)] == shape:
            found.append((name, len(shape) - 1))
    return found


def real_elements(
    spec: TensorSpec,
    contract: Contract,
    layout: Layout,
    feeds: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
) -> np.ndarray:
    """Return which elements of a tensor of that shape are at real positions under the masks in
    `feeds`.

    All of them for a tensor without positions. For a tensor with positions but no rows, those that
    are real in all rows.
    """
    real = np.ones(shape, dtype=bool)
    for name, place in position_dimensions(spec, contract, layout):
        mask = contract_input(contract, name)
        live = real_positions(feeds[name], mask.padding)
        if live.ndim > 1:
            live = np.asarray(live.reshape(live.shape[0], -1, live.shape[-1]).any(axis=1))
        view = [1] * len(shape)
        view[place] = live.shape[-1]
        rows = _rows_before(spec, mask.shape[0], place) if len(mask.shape) > 1 else None
        if rows is None:
            live = np.asarray(live.reshape(-1, live.shape[-1]).all(axis=0))
        else:
            view[rows] = live.shape[0]
        real &= live.reshape(view)
    return real


def _rows_before(spec: TensorSpec, rows: Dimension, place: int) -> int | None:
    """Return the dimension of the mask's rows before the positions, if any."""
    return spec.shape.index(rows) if rows in spec.shape[:place] else None
