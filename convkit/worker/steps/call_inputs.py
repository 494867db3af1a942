"""Cuts sequences into the calls of a loop: models that carry state from one call to the next."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.messages import Steps, call_name
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.values.padding_masks import mask_values, real_positions
from convkit.worker.cases.values.sampled_values import Draw, sample_for

# Rows of a loop's batch: enough to mix them up, and cheap.
_ROWS = 2


@dataclasses.dataclass(frozen=True)
class LoopCall:
    """One call of a loop: its axis sizes, and the positions before it and in it."""

    number: int
    sizes: dict[str, int]
    start: int
    length: int


@dataclasses.dataclass(frozen=True)
class Loop:
    """A sequence cut into calls.

    `first` are the carried inputs of the first call. `whole` are the other inputs of all positions
    at once, from which each call gets its part; without an axis, `fresh` has each call's inputs.
    `whole_sizes` are the axis sizes of one long pass over everything.
    """

    name: str
    description: str
    steps: Steps
    contract: Contract
    calls: tuple[LoopCall, ...]
    first: Feeds
    whole: Feeds
    whole_sizes: dict[str, int]
    fresh: tuple[Feeds, ...] = ()

    def inputs(self, call: LoopCall) -> Feeds:
        """Return a call's own inputs: all that are not carried."""
        if self.steps.axis is None:
            return self.fresh[call.number]
        return {
            spec.name: self._part(spec, self.whole[spec.name], call)
            for spec in own_inputs(self.contract, self.steps)
        }

    def _part(self, spec: TensorSpec, values: np.ndarray, call: LoopCall) -> np.ndarray:
        """Cut the dimensions that advance; one that also counts the past keeps its beginning."""
        index = []
        for dimension in spec.shape:
            axes = dimension_axes(dimension)
            size = dimension_size(dimension, call.sizes)
            advances = self.steps.axis in axes and not set(self.steps.grows) & set(axes)
            before = {**call.sizes, str(self.steps.axis): call.start}
            start = dimension_size(dimension, before) if advances else 0
            index.append(slice(start, start + size))
        return np.ascontiguousarray(values[tuple(index)])


def own_inputs(contract: Contract, steps: Steps) -> tuple[TensorSpec, ...]:
    """Return the inputs that no output feeds."""
    fed = {feed.input for feed in steps.feeds}
    return tuple(spec for spec in contract.inputs if spec.name not in fed)


def fed_inputs(contract: Contract, steps: Steps) -> tuple[TensorSpec, ...]:
    """Return the inputs that outputs of the previous call feed."""
    fed = {feed.input for feed in steps.feeds}
    return tuple(spec for spec in contract.inputs if spec.name in fed)


def build_loops(made_from: CaseInputs, steps: Steps) -> tuple[list[Loop], dict[str, str]]:
    """Return the loops, and by name why others do not apply."""
    lengths = [steps.prefill, *[steps.stride] * steps.count]
    loops, omitted = [], {}
    if steps.axis is None:
        return [_fresh_loop(made_from, steps, len(lengths))], {}
    loops.append(_loop(made_from, steps, "steps", "the first call, then single steps", lengths))
    pads = _pads(made_from, steps, loops[0].calls[0].sizes)
    if isinstance(pads, str):
        omitted["steps-padded"] = pads
    else:
        what = "rows of different lengths, padded on the left"
        loops.append(_loop(made_from, steps, "steps-padded", what, lengths, pads))
    full = _full_lengths(made_from.contract, steps)
    if isinstance(full, str):
        omitted["steps-full"] = full
    else:
        loops.append(_loop(made_from, steps, "steps-full", "until the caches are full", full))
    return loops, omitted


def generation_loop(made_from: CaseInputs, steps: Steps) -> Loop:
    """Return the loop in which `steps.generate` tokens are generated: the first call gives one."""
    lengths = [steps.prefill, *[steps.stride] * (steps.generate - 1)]
    return _loop(made_from, steps, "generation", "tokens are generated", lengths)


def loop_sizes(contract: Contract, steps: Steps, past: int, length: int) -> dict[str, int]:
    """Return the axis sizes of a call after `past` positions of it."""
    sizes = contract.typical_sizes()
    rows = contract.inputs[0].shape[:1]
    for axis in contract.axes:
        if axis.name in steps.grows:
            sizes[axis.name] = axis.min + past
        elif axis.name == steps.axis:
            sizes[axis.name] = length
        elif axis.name in rows:
            sizes[axis.name] = min(axis.max, max(axis.min, _ROWS))
    return sizes


def _loop(
    made_from: CaseInputs,
    steps: Steps,
    name: str,
    description: str,
    lengths: Sequence[int],
    pads: np.ndarray | None = None,
) -> Loop:
    contract, start = made_from.contract, 0
    calls = []
    for number, length in enumerate(lengths):
        calls.append(LoopCall(number, loop_sizes(contract, steps, start, length), start, length))
        start += length
    sizes = loop_sizes(contract, steps, 0, start)
    drawn = made_from.draw(sizes, Draw(name))
    fed = {spec.name for spec in fed_inputs(contract, steps)}
    whole = {key: values for key, values in drawn.items() if key not in fed}
    _place(made_from, steps, whole, pads)
    first = {key: values for key, values in drawn.items() if key in fed}
    return Loop(name, description, steps, contract, tuple(calls), first, whole, sizes)


def _fresh_loop(made_from: CaseInputs, steps: Steps, count: int) -> Loop:
    contract = made_from.contract
    sizes = loop_sizes(contract, steps, 0, 0)
    fed = {spec.name for spec in fed_inputs(contract, steps)}
    drawn = [made_from.draw(sizes, Draw(call_name("steps", number))) for number in range(count)]
    fresh = tuple({k: v for k, v in each.items() if k not in fed} for each in drawn)
    first = {key: values for key, values in drawn[0].items() if key in fed}
    calls = tuple(LoopCall(number, sizes, number, 1) for number in range(count))
    what = "one call after another"
    return Loop("steps", what, steps, contract, calls, first, {}, sizes, fresh)


def mask_of(contract: Contract, steps: Steps) -> TensorSpec | None:
    """Return the input that marks padding along the loop's axis, if there is one."""
    return next((spec for spec in contract.inputs if spec.name == steps.mask), None)


def _pads(made_from: CaseInputs, steps: Steps, sizes: Mapping[str, int]) -> np.ndarray | str:
    """Return how many positions of padding each row has, or why padding does not apply."""
    mask = mask_of(made_from.contract, steps)
    if mask is None:
        return "no input with sample: padding_mask has the steps' axis"
    rows = dimension_size(mask.shape[0], sizes)
    if rows < 2 or steps.prefill < 2:
        return "it needs two rows and a first call of two positions"
    if any(made_from.contract.axis(axis).min for axis in steps.grows):
        return "the cache never starts empty"
    pads: np.ndarray = np.arange(rows) * (steps.prefill - 1) // (rows - 1)
    return pads


def _place(made_from: CaseInputs, steps: Steps, whole: Feeds, pads: np.ndarray | None) -> None:
    """Write the padding into masks and tokens, and the positions that follow from it."""
    mask = mask_of(made_from.contract, steps)
    past = min((made_from.contract.axis(axis).min for axis in steps.grows), default=0)
    live = None
    if mask is not None and pads is not None:
        live = np.arange(whole[mask.name].shape[-1])[None, :] >= pads[:, None]
    for spec in own_inputs(made_from.contract, steps):
        sample, values = sample_for(spec, made_from.samples), whole[spec.name]
        kind = sample.kind
        if live is not None and live.shape == values.shape:
            placed = (
                mask_values(live, spec.padding, sample.numbers)
                if kind == "padding_mask"
                else _padded(kind, values, live, made_from.facts.pad_token)
            )
        else:
            placed = values + past if kind == "positions" else values
        whole[spec.name] = placed.astype(values.dtype)


def _padded(kind: str, values: np.ndarray, live: np.ndarray, pad: int | None) -> np.ndarray:
    """Return values of an input whose first positions are padding where `live` is False."""
    if kind == "positions":
        return np.maximum(np.cumsum(live, axis=-1) - 1, 0)
    return np.where(live, values, pad) if kind == "token_ids" and pad is not None else values


def _full_lengths(contract: Contract, steps: Steps) -> list[int] | str:
    """Return the lengths of calls that fill the caches, and one more call on full caches."""
    if not steps.full:
        return "left out by the recipe (steps.full)"
    if not steps.grows:
        return "no cache grows"
    room = min(contract.axis(axis).max - contract.axis(axis).min for axis in steps.grows)
    if room == steps.prefill + steps.stride * (steps.count - 1):
        return "the same as steps, which fills the caches"
    longest = contract.axis(str(steps.axis)).max
    lengths = []
    while room >= steps.stride:
        lengths.append(min(longest, room))
        room -= lengths[-1]
    return [*lengths, steps.stride]


def padding_of(
    spec: TensorSpec, contract: Contract, steps: Steps, feeds: Feeds, sizes: Mapping[str, int]
) -> np.ndarray | None:
    """Return the elements of an output that are at padding, in its shape at these sizes; None if
    nothing marks padding.

    The mask's columns are the latest positions, as those of the output are.
    """
    mask = mask_of(contract, steps)
    if mask is None or mask.shape[0] not in spec.shape:
        return None
    padded = ~real_positions(feeds[mask.name], mask.padding)
    for place, dimension in enumerate(spec.shape):
        size = dimension_size(dimension, sizes)
        if steps.axis in dimension_axes(dimension) and 0 < size <= padded.shape[1]:
            view = [1] * len(spec.shape)
            view[spec.shape.index(mask.shape[0])], view[place] = padded.shape[0], size
            return np.broadcast_to(padded[:, -size:].reshape(view), spec.concrete_shape(sizes))
    return None


# Changes what one call receives or returns: its number and tensors in, tensors out.
Change = Callable[[int, Feeds], Feeds]


def unchanged(number: int, tensors: Feeds) -> Feeds:
    """Return the tensors as they are."""
    del number
    return tensors


def run_calls(
    run: Callable[[Feeds], Feeds],
    inputs: Sequence[Feeds],
    first: Feeds,
    steps: Steps,
    *,
    inward: Change = unchanged,
    outward: Change = unchanged,
) -> Iterator[Feeds]:
    """Call a model once for each of `inputs`, with its own outputs fed back; yield its outputs.

    `inward` changes what a call gets, `outward` what it returned, before that is fed back.
    """
    carried = first
    for number, own in enumerate(inputs):
        outputs = outward(number, run(inward(number, {**own, **carried})))
        carried = {feed.input: outputs[feed.output] for feed in steps.feeds}
        yield outputs
