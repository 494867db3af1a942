"""How onnxruntime-genai finds a decoder's inputs, outputs and caches by their names. Pure: the
recipe's checks and the build ask for the same.

genai names caches by patterns with one %d for the layer, keys and values apart, and expects the
shape [rows, heads, past, size] (genai_config.json, its reference in the documentation of
onnxruntime-genai).
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from convkit.protocol.messages import Feed

# What a cache's name holds apart from the layer, as exporters write it.
_KEY = re.compile(r"key|(^|[^a-z])k([^a-z]|$)", re.IGNORECASE)
_VALUE = re.compile(r"val|(^|[^a-z])v([^a-z]|$)", re.IGNORECASE)

Shape = Sequence[int | str]


@dataclasses.dataclass(frozen=True)
class CacheLayout:
    """A decoder's caches: how many layers, key-value heads and numbers per head, and the patterns
    of their names.
    """

    layers: int
    heads: int
    size: int
    past_keys: str
    past_values: str
    present_keys: str
    present_values: str


def cache_layout(feeds: Sequence[Feed], shapes: Mapping[str, Shape]) -> CacheLayout | str:
    """Return the layout of the caches that `feeds` carry, or why genai cannot hold them."""
    parts: dict[str, list[Feed]] = {}
    for feed in feeds:
        parts.setdefault(feed.part, []).append(feed)
    keys = [part for part in parts if _KEY.search(part)]
    values = [part for part in parts if _VALUE.search(part) and part not in keys]
    if len(parts) != 2 or len(keys) != 1 or len(values) != 1:
        named = ", ".join(map(repr, sorted(parts)))
        return f"needs a cache of keys and one of values per layer; steps.feeds carries {named}"
    patterns = []
    for part in (keys[0], values[0]):
        numbers = sorted(-1 if feed.layer is None else feed.layer for feed in parts[part])
        if numbers != list(range(len(numbers))):
            return "needs caches numbered by layer from 0, such as past.0.key and past.1.key"
        patterns += [_pattern(parts[part], side) for side in ("input", "output")]
    if None in patterns or len(parts[keys[0]]) != len(parts[values[0]]):
        return "needs caches whose names differ in the layer's number only"
    sizes = {tuple(shapes[feed.input]) for feed in feeds}
    shape = next(iter(sizes))
    if len(sizes) != 1 or len(shape) != 4:
        return "needs caches of one shape, [rows, heads, past, size]"
    heads, size = shape[1], shape[3]
    if not isinstance(heads, int) or not isinstance(size, int):
        return "needs caches of a fixed number of heads, and of numbers per head"
    past_keys, present_keys, past_values, present_values = (str(each) for each in patterns)
    return CacheLayout(
        len(parts[keys[0]]), heads, size, past_keys, past_values, present_keys, present_values
    )


def unknown_inputs(inputs: Sequence[str], known: Sequence[str | None]) -> str | None:
    """Return why genai cannot feed all of a model's inputs; None if it can."""
    rest = [name for name in inputs if name not in known]
    if not rest:
        return None
    return (
        f"feeds tokens, their mask, positions and caches; {rest[0]!r} is none of them"
        " (sample: token_ids, padding_mask, positions; steps.feeds)"
    )


def _pattern(feeds: Sequence[Feed], side: str) -> str | None:
    """Return the names of one part in all layers, with %d for the layer; None if there is none."""
    common: set[str] | None = None
    for feed in feeds:
        name = str(getattr(feed, side))
        found = {
            f"{name[: match.start()]}%d{name[match.end() :]}"
            for match in re.finditer(r"\d+", name)
            if match[0] == str(feed.layer)
        }
        common = found if common is None else common & found
    return min(common) if common else None
