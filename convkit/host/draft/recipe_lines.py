"""Lines of a drafted recipe that describe tensors, axes and tools."""

import json
import textwrap
from collections.abc import Iterator, Mapping

from convkit.host.draft.transformers_families import DraftInput, DraftOutput, DraftSample, Drawn
from convkit.host.recipe.reading.yaml_scalars import yaml_scalar
from convkit.protocol.json_codec import Json
from convkit.protocol.metrics.metric_registry import DEFAULTS, PARAMETERS

# The versions that this repository's recipes are verified with.
TOOLS = {"torch": "==2.13.*", "transformers": "==5.23.*", "onnxruntime": "==1.31.*"}
PYTHON = "3.11"
_WIDTH = 96  # of a comment below `axes`, without its `  # `


def axis_lines(axes: Mapping[str, tuple[int, int, int]], notes: Mapping[str, str]) -> Iterator[str]:
    """Yield `axes` with their smallest, typical and largest sizes, and what is known of them."""
    yield (
        "# The sizes the converted model must support. Verification tries the smallest, typical and"
        " largest."
    )
    yield "axes:"
    for axis, (low, typical, high) in axes.items():
        if axis in notes:
            yield from (f"  # {line}" for line in textwrap.wrap(f"{notes[axis]}.", _WIDTH))
        yield f"  {yaml_scalar(axis)}: {{ min: {low}, typical: {typical}, max: {high} }}"


def item_lines(keys: list[str], below: list[str]) -> Iterator[str]:
    """Yield a tensor on one line, or its keys and the lines below them one by one."""
    if not below:
        yield f"  - {{ {', '.join(keys)} }}"
        return
    yield f"  - {keys[0]}"
    yield from (f"    {line}" for line in (*keys[1:], *below))


def keys_of(tensor: DraftInput | DraftOutput) -> Iterator[str]:
    """Yield a tensor's keys, with an input's sample."""
    yield f"name: {yaml_scalar(tensor.name)}"
    if tensor.origin is not None:
        yield f"from: {yaml_scalar(tensor.origin)}"
    yield f"dtype: {tensor.dtype}"
    yield f"shape: [{', '.join(map(yaml_scalar, tensor.shape))}]"
    if isinstance(tensor, DraftInput):
        yield from _sample(tensor.sample)
    elif tensor.mask is not None:
        yield f"mask: {yaml_scalar(tensor.mask)}"


def tolerance_lines(limits: Mapping[str, Mapping[str, Json]]) -> Iterator[str]:
    """Yield the tolerance of float32, and other limits by output, which were measured in float32.

    Targets in other types get limits that follow from the type.
    """
    yield "  by_precision:"
    yield "    float32: # what float16, int8, ... may be off follows from the type"
    yield "      tolerance:"
    for name, value in DEFAULTS.items():
        yield f"        {name}: {value} # the {PARAMETERS[name].description}"
    if limits:
        yield "      outputs: # in place of the above; from the largest values and rounding errors"
        for output, own in limits.items():
            yield f"        {yaml_scalar(output)}: {{ {listed(own)} }}"


def listed(limits: Mapping[str, Json]) -> str:
    """Return limits as they are written in a mapping on one line."""
    return ", ".join(f"{key}: {json.dumps(limit)}" for key, limit in limits.items())


def _sample(sample: DraftSample | None) -> Iterator[str]:
    match sample:
        case None:
            return
        case str():
            yield f"sample: {sample}"
        case Drawn():
            held = ", ".join(f"[{number}, {count}]" for number, count in sample.held)
            more = f", holds: [{held}]" if held else ", filled: true" if sample.filled else ""
            yield f"sample: {{ {sample.kind}: {json.dumps(sample.numbers)}{more} }}"
        case (low, high):
            yield f"sample: {{ integers: [{low}, {high}] }}"
