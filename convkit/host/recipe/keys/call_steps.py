"""`steps:` of a recipe: which outputs feed which inputs when the model is called in a loop."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, mapping, perhaps
from convkit.host.recipe.checks.padding_samples import PADDING_VALUES
from convkit.host.recipe.keys.field_types import AxisName, RecipeModel, Switch, TensorName
from convkit.protocol.contract import DimensionError, dimension_axes, dimension_size
from convkit.protocol.messages import Feed

# Positions of the first call, and single steps after it, unless the axes allow fewer.
PREFILL, COUNT = 16, 8

Calls = Annotated[int, Field(strict=True, ge=1, le=100_000)]


class StepsModel(RecipeModel):
    """How the model is called in a loop, as generation and streaming do."""

    feeds: Annotated[dict[TensorName, TensorName], Field(min_length=1)] = Field(
        description=(
            "which output becomes which input of the next call; * matches the same text in both"
        ),
        examples=[{"present.*": "past.*"}, {"state_out": "state"}],
    )
    axis: AxisName | None = Field(
        None,
        description=(
            "the axis along which a sequence is cut into calls; without one, every"
            " call has new inputs"
        ),
        examples=["sequence"],
    )
    prefill: Calls | None = Field(
        None, description=f"positions in the first call; default: {PREFILL}, or what axes allow"
    )
    count: Calls | None = Field(
        None, description=f"calls after the first; default: {COUNT}, or what axes allow"
    )
    full: Switch = Field(
        default=True,
        description="also run until the caches have their largest size, and one call more",
    )
    greedy: TensorName | None = Field(
        None,
        description=(
            "the output with the scores of the next token; sequences are then also generated, with"
            " the best token each time"
        ),
        examples=["logits"],
    )


@dataclasses.dataclass(frozen=True)
class Lengths:
    """The calls of a loop: positions in the first, and number and length of the others."""

    prefill: int
    stride: int
    count: int


def resolve_feeds(
    feeds: Mapping[str, str], outputs: Sequence[str], inputs: Sequence[str]
) -> tuple[list[Feed], dict[str, str]]:
    """Return the pairs that match patterns, and by pattern what is wrong with it."""
    found: dict[str, Feed] = {}
    wrong: dict[str, str] = {}
    fed: set[str] = set()
    for output, target in feeds.items():
        pairs = list(_pairs(output, target, outputs))
        if output.count("*") > 1 or output.count("*") != target.count("*"):
            wrong[output] = "write one * on both sides, or on neither"
            continue
        if not pairs:
            wrong[output] = f"no output is called that{perhaps(output, outputs)}"
        for name, target_name, text in pairs:
            if target_name not in inputs:
                guess = perhaps(target_name, inputs)
                message = f"{name!r} would feed {target_name!r}, which is not an input{guess}"
                wrong.setdefault(output, message)
            elif target_name in fed or name in found:
                message = f"{name!r} or {target_name!r} is in another pair already"
                wrong.setdefault(output, message)
            else:
                found[name] = Feed(name, target_name, *_layer(text))
                fed.add(target_name)
    return list(found.values()), wrong


def _pairs(output: str, target: str, outputs: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield output, input and the text that `*` matches."""
    if "*" not in output:
        if output in outputs:
            yield output, target, output
        return
    pattern = re.compile(re.escape(output).replace(r"\*", "(.+)"))
    for name in outputs:
        if match := pattern.fullmatch(name):
            yield name, target.replace("*", match[1]), match[1]


def _layer(text: str) -> tuple[int | None, str]:
    """Split `0.key` into the layer's number and the rest."""
    if number := re.search(r"\d+", text):
        return int(number[0]), text[: number.start()] + text[number.end() :]
    return None, text


def growing_axes(
    feeds: Sequence[Feed], shapes: Mapping[str, Sequence[int | str]], axis: str | None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the axes that grow with every call, and by output why its shape cannot be fed back.

    An input's axis `past` grows if its output has `past` plus what the call advances in that place.
    """
    grows: dict[str, None] = {}
    wrong: dict[str, str] = {}
    for feed in feeds:
        one, other = shapes[feed.output], shapes[feed.input]
        if len(one) != len(other):
            wrong[feed.output] = _misfit(feed, one, other)
            continue
        for found, wanted in zip(one, other, strict=True):
            if found == wanted:
                continue
            if isinstance(wanted, str) and axis is not None and _adds(found, wanted, axis):
                grows[wanted] = None
            else:
                wrong[feed.output] = _misfit(feed, one, other)
    return tuple(grows), wrong


def _adds(found: int | str, wanted: str, axis: str) -> bool:
    """Say whether a dimension is the sum of two axes, at sizes that show it."""
    try:
        if set(dimension_axes(found)) != {wanted, axis}:
            return False
        return all(
            dimension_size(found, {wanted: past, axis: step}) == past + step
            for past, step in ((0, 1), (7, 5), (64, 3))
        )
    except DimensionError:
        return False


def _misfit(feed: Feed, one: Sequence[int | str], other: Sequence[int | str]) -> str:
    return (
        f"{feed.output!r} has the shape {list(one)}, which cannot feed {feed.input!r} of shape"
        f" {list(other)}: the shapes must be equal, or the input's cache must grow by the axis"
        " under steps.axis (past in the input, past + sequence in the output)"
    )


def lengths_of(
    prefill: int | None,
    count: int | None,
    axis: Mapping[str, int] | None,
    caches: Sequence[Mapping[str, int]],
) -> Lengths | str:
    """Return the calls that fit the axes (each with min and max), or why none do."""
    if axis is None:
        return Lengths(1, 1, count or COUNT)
    stride = max(axis["min"], 1)
    # The last call adds to caches that may be at their largest before it.
    room = min((cache["max"] - cache["min"] for cache in caches), default=axis["max"] + 10**9)
    first = prefill or max(stride, min(PREFILL, axis["max"], room - stride))
    if not stride <= first <= axis["max"]:
        return f"a first call of {first} positions is outside the axis ({stride} to {axis['max']})"
    most = (room - first) // stride + 1 if room >= first else 0
    if most < 1 or (count or 1) > most:
        return (
            f"the caches have room for {room} positions before the last call: {first} and"
            f" {count or 1} calls of {stride} do not fit; raise the cache's axis, or lower prefill"
            " or count"
        )
    return Lengths(first, stride, count or min(COUNT, most))


def steps_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return what is inconsistent between `steps` and the rest of a recipe."""
    steps = mapping(recipe.get("steps"))
    feeds = {k: v for k, v in mapping(steps.get("feeds")).items() if isinstance(v, str)}
    inputs, outputs = tensors_by_name(recipe, "inputs"), tensors_by_name(recipe, "outputs")
    if not feeds or not inputs or not outputs:
        return
    pairs, wrong = resolve_feeds(feeds, list(outputs), list(inputs))
    for output, message in wrong.items():
        yield RecipeFault(("steps", "feeds", output), message)
    sizes = {name: _sizes(mapping(given)) for name, given in mapping(recipe.get("axes")).items()}
    axes = {name: found for name, found in sizes.items() if found is not None}
    axis = steps.get("axis")
    if isinstance(axis, str) and axis not in mapping(recipe.get("axes")):
        yield RecipeFault(
            ("steps", "axis"), f"{axis!r} is not one of the axes{perhaps(axis, axes)}"
        )
        return
    if mapping(mapping(recipe.get("axes")).get(str(axis))).get("from") == "data":
        message = f"{axis!r} has no sizes to cut, because data decide them; name an input's axis"
        yield RecipeFault(("steps", "axis"), message)
        return
    yield from _greedy_faults(recipe, inputs, outputs, axis)
    if wrong:
        return
    shapes = {name: tensor["shape"] for name, tensor in {**inputs, **outputs}.items()}
    grows, misfits = growing_axes(pairs, shapes, axis if isinstance(axis, str) else None)
    for message in misfits.values():
        yield RecipeFault(("steps", "feeds"), message)
    for pair in pairs:
        if outputs[pair.output].get("dtype") != inputs[pair.input].get("dtype"):
            message = f"{pair.output!r} and {pair.input!r} have different dtypes"
            yield RecipeFault(("steps", "feeds"), message)
    if not misfits:
        yield from _length_faults(steps, inputs, {pair.input for pair in pairs}, grows, axes)


def _length_faults(
    steps: Mapping[str, object],
    inputs: Mapping[str, Mapping[str, Any]],
    fed: set[str],
    grows: Sequence[str],
    axes: Mapping[str, Mapping[str, int]],
) -> Iterator[RecipeFault]:
    axis = steps.get("axis")
    for name, tensor in inputs.items():
        for dimension in tensor["shape"] if name not in fed else ():
            names = _axes(dimension)
            if set(grows) & set(names) and axis not in names:
                message = f"{name!r} has the size {dimension!r} of a cache, and nothing feeds it"
                yield RecipeFault(("steps", "feeds"), message)
    if (axis is not None and axis not in axes) or not set(grows) <= set(axes):
        return  # the axes themselves are reported
    prefill, count = steps.get("prefill"), steps.get("count")
    if not isinstance(prefill, int | None) or not isinstance(count, int | None):
        return
    found = lengths_of(
        prefill,
        count,
        axes[str(axis)] if axis is not None else None,
        [axes[name] for name in grows],
    )
    if isinstance(found, str):
        yield RecipeFault(("steps",), found)


def _greedy_faults(
    recipe: Mapping[str, object],
    inputs: Mapping[str, Mapping[str, Any]],
    outputs: Mapping[str, Mapping[str, Any]],
    axis: object,
) -> Iterator[RecipeFault]:
    scores = mapping(recipe.get("steps")).get("greedy")
    if not isinstance(scores, str):
        return
    place = ("steps", "greedy")
    if scores not in outputs:
        yield RecipeFault(place, f"{scores!r} is not an output{perhaps(scores, outputs)}")
    elif len(shape := outputs[scores]["shape"]) != 3 or shape[1] != axis:
        yield RecipeFault(place, f"{scores!r} must have the shape [rows, {axis}, tokens]")
    if tokens_of(inputs, axis) is None:
        message = f"needs an input with sample: token_ids and the shape [rows, {axis or 'axis'}]"
        yield RecipeFault(place, message)
    if (least := mapping(mapping(recipe.get("axes")).get(str(axis))).get("min", 1)) != 1:
        yield RecipeFault(
            place, f"generates one token per call, and axes.{axis}.min is {least}; write 1"
        )


def tokens_of(inputs: Mapping[str, Mapping[str, Any]], axis: object) -> str | None:
    """Return the input of token ids that advances along an axis."""
    return _sampled(inputs, ("token_ids",), lambda last: last == axis)


def mask_name(inputs: Mapping[str, Mapping[str, Any]], axis: object) -> str | None:
    """Return the padding mask that covers the positions along an axis."""
    return _sampled(inputs, PADDING_VALUES, lambda last: axis in _axes(last))


def _sampled(
    inputs: Mapping[str, Mapping[str, Any]],
    samples: Collection[str],
    fits: Callable[[int | str], bool],
) -> str | None:
    for name, tensor in inputs.items():
        shape = tensor["shape"]
        sample = tensor.get("sample")
        if isinstance(sample, str) and sample in samples and len(shape) == 2 and fits(shape[1]):
            return name
    return None


def _axes(dimension: int | str) -> tuple[str, ...]:
    try:
        return dimension_axes(dimension)
    except DimensionError:
        return ()  # reported where the dimension itself is checked


def tensors_by_name(recipe: Mapping[str, object], kind: str) -> dict[str, Mapping[str, Any]]:
    """Return the well-formed inputs or outputs by name."""
    listed = recipe.get(kind)
    return {
        tensor["name"]: tensor
        for tensor in (listed if isinstance(listed, list | tuple) else ())
        if isinstance(tensor, dict)
        and isinstance(tensor.get("name"), str)
        and isinstance(tensor.get("shape"), list | tuple)
    }


def _sizes(axis: Mapping[str, object]) -> dict[str, int] | None:
    sizes = {key: size for key in ("min", "max") if isinstance(size := axis.get(key), int)}
    return sizes if len(sizes) == 2 else None
