"""What the outputs of the original model show: NaN, and shapes and types that were not declared."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract, DataAxis, Dimension, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Sample
from convkit.protocol.module_naming import module_at
from convkit.protocol.numpy_dtypes import dtype_name, without_bits
from convkit.worker.cases.axis_sizes import smallest_sizes
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.defined_sample_ranges import defined_ranges, range_of
from convkit.worker.cases.values.padding_masks import output_padding, real_positions, real_values
from convkit.worker.cases.values.sampled_values import Draw, sample_for
from convkit.worker.runtime_interface.sessions import RunFailedError

if TYPE_CHECKING:
    from convkit.worker.original.probing.nan_origin import NanOrigin

_SHOWN = 3  # outputs in a message
# The lowest and highest value of inputs, by name.
Ranges = Mapping[str, Sample]


@dataclasses.dataclass(frozen=True)
class HiddenRows:
    """Rows of a mask that hide every position. Without that, a model returns no NaN."""

    mask: str
    rows: tuple[int, ...]


def nan_finding(
    contract: Contract,
    case: Case,
    outputs: Feeds,
    origin: Callable[[], "NanOrigin | None"] | None = None,
    ranges: Callable[[], Ranges] = dict,
    hidden: Callable[[], HiddenRows | None] = lambda: None,
) -> Finding | None:
    """Return a finding if outputs have NaN that is not at padding; `origin` finds where it begins,
    `ranges` those of inputs in which the model returns none, and `hidden` the rows of a mask that
    cause it.
    """
    counts = {spec.name: count_nan(outputs[spec.name]) for spec in contract.outputs}
    if any(counts.values()):
        feeds = case.inputs()
        padded = {spec.name: output_padding(feeds, contract, spec) for spec in contract.outputs}
        counts = {name: count_nan(real_values(outputs[name], padded[name])) for name in counts}
    if not any(counts.values()):
        return None
    found = origin() if origin is not None else None
    rows = hidden()
    remedy = _narrower(contract, ranges()) or _skipped(case, rows)
    sizes = {name: outputs[name].size for name, nans in counts.items() if nans}
    return _nan(counts, sizes, case, found, rows, remedy)


def hidden_rows(
    made_from: CaseInputs, feeds: Feeds, run: Callable[[Feeds], Feeds]
) -> HiddenRows | None:
    """Return the rows of a mask that hide every position, if the model returns no NaN once the
    first position of each of them is visible.
    """
    for spec in made_from.contract.inputs:
        is_mask = sample_for(spec, made_from.samples).kind == "padding_mask"
        mask = feeds[spec.name]
        if not is_mask or mask.dtype.kind not in "iub" or not mask.ndim:
            continue
        hides = ~real_positions(mask, spec.padding).any(-1, keepdims=True)
        if not hides.any():
            continue
        opened = mask.copy()
        opened[..., :1] = np.where(hides, 1 - spec.padding, mask[..., :1])
        try:
            left = any(map(count_nan, run({**feeds, spec.name: opened}).values()))
        except RunFailedError:
            continue
        if not left:
            return HiddenRows(spec.name, tuple(int(row) for row in np.flatnonzero(hides)))
    return None


def ranges_without_nan(made_from: CaseInputs, run: Callable[[Feeds], Feeds]) -> Ranges:
    """Return narrower ranges of inputs in which a model returns no NaN, as `defined_ranges` does,
    at the smallest sizes.
    """
    sizes = smallest_sizes(made_from.contract)

    def drawn(samples: Mapping[str, Sample], draw: Draw) -> Feeds:
        return dataclasses.replace(made_from, samples=samples).draw(sizes, draw)

    def is_undefined(feeds: Feeds) -> bool:
        try:
            return any(map(count_nan, run(feeds).values()))
        except RunFailedError:
            return False

    return defined_ranges(made_from.contract, made_from.samples, drawn, is_undefined)


def undeclared_outputs(contract: Contract, case: Case, outputs: Feeds) -> Iterator[Finding]:
    """Yield a finding for each output whose element type, shape or rows are not as declared."""
    for place, spec in enumerate(contract.outputs):
        values = outputs[spec.name]
        found = dtype_name(values.dtype)
        if found != spec.dtype:
            yield _other_dtype(spec, place, found, case)
        if not spec.fits(values.shape, case.sizes):
            yield _other_shape(spec.name, spec.shape_at(case.sizes), values.shape, case)
    for axis in contract.data_axes:
        if finding := _row_counts(axis, contract, outputs, case):
            yield finding


def count_nan(values: np.ndarray) -> int:
    """Return how many elements are NaN."""
    values = without_bits(values)
    return int(np.isnan(values).sum()) if values.dtype.kind in "fc" else 0


def _skipped(case: Case, hidden: HiddenRows | None) -> Remedy:
    skipped = case.name.partition(":")[0]
    leave_out = f"leave out the case with verify.skip: [{skipped}]."
    if hidden is None:
        return Remedy(f"Fix the model, or {leave_out}", {"verify.skip": [skipped]})
    return Remedy(
        f"Fix the model: return other values for rows of {hidden.mask!r} without a visible position"
        f" (torch.where). Or, if callers never send such rows, {leave_out}",
        {"verify.skip": [skipped]},
    )


def _narrower(contract: Contract, ranges: Ranges) -> Remedy | None:
    """Return a remedy that draws inputs from ranges in which the model was found to be defined."""
    if not ranges:
        return None
    places = {spec.name: place for place, spec in enumerate(contract.inputs)}
    listed = ", ".join(
        f"{name!r} from {ends[0]:g} to {ends[1]:g}"
        for name, sample in ranges.items()
        if (ends := range_of(sample)) is not None
    )
    return Remedy(
        f"If callers never send such values, draw {listed}: the model returns no NaN there."
        " Otherwise fix the model.",
        {
            f"inputs.{places[name]}.sample": {sample.kind: _written(sample)}
            for name, sample in ranges.items()
        },
        proven=True,
    )


def _written(sample: Sample) -> list[Json]:
    return [int(each) if sample.kind == "integers" else each for each in sample.numbers]


def _nan(
    counts: Mapping[str, int],
    elements: Mapping[str, int],
    case: Case,
    origin: "NanOrigin | None",
    hidden: HiddenRows | None,
    remedy: Remedy,
) -> Finding:
    first = next(iter(elements))
    begins, place = "", Place(tensor=first, case=case.name)
    if origin is not None:
        begins = f". It begins in {origin.operator} ({module_at(origin.module, origin.source)})"
        place = dataclasses.replace(place, module=origin.module or None, source=origin.source)
    return Finding(
        "N103",
        f"the original model returns NaN on case {case.name!r} ({sizes_text(case.sizes)}):"
        f" {_listed(counts, elements)}; nothing can be proven there{begins}{_why(hidden)}",
        place,
        {
            "nan": counts[first],
            "elements": elements[first],
            "sizes": case.sizes,
            "outputs": list(elements),
            "hidden": None if hidden is None else [hidden.mask, *hidden.rows],
        },
        remedy,
    )


def _listed(counts: Mapping[str, int], elements: Mapping[str, int]) -> str:
    said = [f"{counts[name]} of {count} elements of {name!r}" for name, count in elements.items()]
    return ", ".join(said) if len(said) <= _SHOWN else f"{said[0]} and of {len(said) - 1} others"


def _why(hidden: HiddenRows | None) -> str:
    if hidden is None:
        return ""
    count = len(hidden.rows)
    rows = f"row {hidden.rows[0]}" if count == 1 else f"{count} rows"
    return (
        f". {hidden.mask!r} hides every position of {rows}: with one of them visible, the model"
        " returns no NaN"
    )


def _other_dtype(spec: TensorSpec, place: int, found: str, case: Case) -> Finding:
    return Finding(
        "C205",
        f"output {spec.name!r} of the original model is {found}; declared {spec.dtype}",
        Place(tensor=spec.name, case=case.name),
        {"declared": spec.dtype, "found": found},
        Remedy(
            f"Set dtype: {found} for output {spec.name!r}.",
            {f"outputs.{place}.dtype": found},
            proven=True,
        ),
    )


def _other_shape(
    output: str, declared: tuple[Dimension, ...], found: tuple[int, ...], case: Case
) -> Finding:
    return Finding(
        "C207",
        f"output {output!r} of the original model has shape {list(found)} on case {case.name!r}"
        f" ({sizes_text(case.sizes)}); the declared shape would be {list(declared)}",
        Place(tensor=output, case=case.name),
        {"declared": list(declared), "found": list(found), "sizes": case.sizes},
        Remedy(f"Set the shape of output {output!r} to the model's, in terms of the axes."),
    )


def _row_counts(axis: DataAxis, contract: Contract, outputs: Feeds, case: Case) -> Finding | None:
    """Return C207 if the outputs along a data axis differ in their number of rows, or have more
    than declared.
    """
    counts = {
        spec.name: outputs[spec.name].shape[spec.shape.index(axis.name)]
        for spec in contract.outputs
        if axis.name in spec.shape and outputs[spec.name].ndim == len(spec.shape)
    }
    if not counts:
        return None
    output, most = max(counts.items(), key=lambda each: each[1])
    where = f"of the original model on case {case.name!r} ({sizes_text(case.sizes)})"
    place = Place(tensor=output, case=case.name)
    evidence = {"counts": counts, "max": axis.max}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} has {count}" for name, count in counts.items())
        return Finding(
            "C207",
            f"the outputs {where} share the axis {axis.name!r}, but {listed} along it",
            place,
            evidence,
            Remedy("Declare a separate axis for each number of rows."),
        )
    if most > axis.max:
        return Finding(
            "C207",
            f"output {output!r} {where} has {most} rows along {axis.name!r}; at most {axis.max}",
            place,
            evidence,
            Remedy(
                f"Set axes.{axis.name}.max to the most rows that the model can return.",
                {f"axes.{axis.name}.max": most},
            ),
        )
    return None


def no_influence(name: str) -> Finding:
    """Return C112 for an input whose values change none of the original's outputs."""
    return Finding(
        "C112",
        f"changing {name!r} changes no output of the original model",
        Place(tensor=name, case=f"perturbed:{name}"),
        {"moved_reference": 0.0},
        Remedy(f"Remove input {name!r} from the recipe, or choose a sample for which it matters."),
    )
