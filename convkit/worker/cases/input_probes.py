"""Probes distinguish swapped, merged and dead inputs from a model that is merely inaccurate.

A probe changes one aspect of a small base case in which every input matters.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import OmittedCase, ProbeChange, Sample
from convkit.worker.cases.case import Case, CaseInputs, Feeds, sizes_text
from convkit.worker.cases.values.held_numbers import kept
from convkit.worker.cases.values.padding_masks import mask_values, real_positions
from convkit.worker.cases.values.sampled_values import (
    Draw,
    draw_values,
    generator,
    integer_range,
    sample_for,
)

BASE = "probes"

# Larger groups of inputs of one type and shape (a decoder's caches) would produce thousands of
# pairs, so each input is only paired with the next one.
_LARGEST_GROUP = 8


def base_case(made_from: CaseInputs, sizes: dict[str, int]) -> Case:
    """Return the case that the probes change: rows of different lengths, values of every kind."""

    def inputs() -> Feeds:
        # Pad tokens would make mask and token ids equivalent, so merging the two would be
        # inconclusive.
        return made_from.draw(sizes, Draw(BASE, "right", pad_tokens=False))

    return Case(BASE, f"the base of the probes ({sizes_text(sizes)})", sizes, inputs, kind="probe")


def build_probes(made_from: CaseInputs, base: Case) -> tuple[list[Case], list[OmittedCase]]:
    """Return the probes of a base case, `perturbed:a`, `crossed:a:b`, `merged:a:b`, and the omitted
    ones.
    """
    inputs = made_from.contract.inputs
    probes = [_perturbed(made_from, base, spec) for spec in inputs]
    omitted = []
    for group in _alike(inputs):
        pairs = list(itertools.combinations(group, 2))
        if len(group) > _LARGEST_GROUP:
            left_out = len(pairs) - len(group) + 1
            pairs = list(itertools.pairwise(group))
            reason = (
                f"{left_out} pairs of the {len(group)} inputs like {group[0]} that are not adjacent"
            )
            omitted.append(OmittedCase(f"crossed:{group[0]}:...", reason))
        probes += [_crossed(base, a, b) for a, b in pairs]
        probes += [_merged(base, a, b) for one, two in pairs for a, b in ((one, two), (two, one))]
    return probes, omitted


def _alike(specs: Sequence[TensorSpec]) -> Iterator[list[str]]:
    """Group the inputs that could be taken for each other: of one dtype and shape."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for spec in specs:
        groups.setdefault((spec.dtype, spec.shape), []).append(spec.name)
    yield from (group for group in groups.values() if len(group) > 1)


def _crossed(base: Case, a: str, b: str) -> Case:
    def inputs() -> Feeds:
        feeds = base.inputs()
        return feeds | {a: feeds[b], b: feeds[a]}

    return _probe(base, ProbeChange("crossed", (a, b)), f"{a!r} and {b!r} swapped", inputs)


def _merged(base: Case, a: str, b: str) -> Case:
    def inputs() -> Feeds:
        feeds = base.inputs()
        return feeds | {b: feeds[a]}

    return _probe(base, ProbeChange("merged", (a, b)), f"{a!r} fed to {b!r} as well", inputs)


def _perturbed(made_from: CaseInputs, base: Case, spec: TensorSpec) -> Case:
    def inputs() -> Feeds:
        feeds = base.inputs()
        return feeds | {spec.name: other_values(made_from, spec, feeds[spec.name])}

    change = ProbeChange("perturbed", (spec.name,))
    return _probe(base, change, f"other values for {spec.name!r}", inputs)


def _probe(base: Case, change: ProbeChange, description: str, inputs: Callable[[], Feeds]) -> Case:
    return Case(
        name=change.name,
        description=description,
        sizes=base.sizes,
        inputs=inputs,
        kind="probe",
        base=base.name,
        change=change,
    )


def other_values(made_from: CaseInputs, spec: TensorSpec, values: np.ndarray) -> np.ndarray:
    """Return different legal values of the same kind; the same if there are no others."""
    sample = sample_for(spec, made_from.samples)
    random = generator(made_from.seed, "perturbed", spec.name)
    if values.size == 0:
        return values
    match sample.kind:
        case "padding_mask":
            return _other_mask(values, sample)
        case "causal_mask":
            return _other_pairs(values, spec, sample)
        case "token_ids" | "integers":
            low, high = integer_range(spec, sample, made_from.facts)
            if high - low < 2:
                return values
            step = random.integers(1, high - low, size=values.shape)
            moved = (values.astype(np.int64) - low + step) % (high - low) + low
            if sample.held:
                moved = kept(moved, values, (low, high), sample.held)
            return np.asarray(moved).astype(values.dtype)
        case "positions":
            several = values.ndim > 0 and values.shape[-1] > 1
            return (
                np.ascontiguousarray(values[..., ::-1])
                if several
                else (values + 1).astype(values.dtype)
            )
        case "one_of":
            others = [number for number in sample.numbers if (values != number).any()]
            return np.full_like(values, others[0]) if others else values
        case "lengths" | "offsets":
            return np.maximum(values // 2, np.minimum(values, 1))
        case "strings":
            texts = np.array(sample.strings)
            places = np.searchsorted(np.sort(texts), values)
            return np.asarray(np.sort(texts)[(places + 1) % len(texts)])
        case "normal" | "uniform" | "columns" | "image" | "audio" | "encoded_image":
            return draw_values(
                spec, sample, values.shape, random, made_from.facts, Draw("perturbed")
            )
        case "constant":
            return _other_constant(values)
        case "file":
            return _rolled(values)


def _rolled(values: np.ndarray) -> np.ndarray:
    """Return a file's rows in another order: what holds within a row still does. Where all rows are
    equal, the elements of the next axis move, and without any others, the values change.
    """
    moved = (np.roll(values, 1, axis) for axis in range(values.ndim))
    other = next((each for each in moved if not np.array_equal(each, values)), None)
    return _other_constant(values) if other is None else other


def _other_mask(values: np.ndarray, sample: Sample) -> np.ndarray:
    """Flip every third position, counted from the end, and never the first, which is real in the
    base case.
    """
    if sample.numbers:
        flipped = _other_mask((values != 0).astype(np.int8), Sample("padding_mask"))
        return mask_values(flipped == 0, 1, sample.numbers).astype(values.dtype)
    positions = values.shape[-1] if values.ndim else 1
    index = np.arange(positions)
    flipped = ((positions - 1 - index) % 3 == 0) & (index > 0)
    return np.where(flipped, 1 - values.astype(np.int64), values.astype(np.int64)).astype(
        values.dtype
    )


def _other_pairs(values: np.ndarray, spec: TensorSpec, sample: Sample) -> np.ndarray:
    """Hide every second pair, counted from each position itself, which stays visible."""
    visible = real_positions(values, spec.padding)
    queries, keys = values.shape[-2:] if values.ndim > 1 else (1, values.size)
    distance = np.arange(queries)[:, None] + max(0, keys - queries) - np.arange(keys)
    visible = visible & (distance % 2 == 0).reshape(values.shape[-2:])
    return mask_values(visible, spec.padding, sample.numbers).astype(values.dtype)


def _other_constant(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "b":
        return ~values
    if values.dtype.kind == "U":
        return values  # a file's texts: no others are known to be legal
    if values.dtype.kind in "iu":
        return (values + 1).astype(values.dtype)
    return np.where(values == 0, 1, values * 1.5).astype(values.dtype)
