"""Writes dimensions, and samples that depend on them, with other names for their axes."""

import dataclasses
import re
from collections.abc import Mapping

from convkit.protocol.contract import Dimension, TensorSpec, dimension_axes, dimension_size
from convkit.protocol.messages import Held, Sample


def substituted(spec: TensorSpec, words: Mapping[str, Dimension]) -> TensorSpec:
    """Return a tensor with other names for axes, including in expressions."""
    return dataclasses.replace(spec, shape=tuple(in_words(size, words) for size in spec.shape))


def _factor(size: Dimension) -> str:
    """Return a dimension as part of an expression."""
    text = str(size)
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def in_words(size: Dimension, words: Mapping[str, Dimension]) -> Dimension:
    """Return a dimension with other names for axes."""
    if isinstance(size, int):
        return size
    if size in words:
        return words[size]
    text = re.sub(r"[A-Za-z_]\w*", lambda match: _factor(words.get(match[0], match[0])), size)
    return text if dimension_axes(text) else dimension_size(text, {})


def in_samples(sample: Sample, words: Mapping[str, Dimension]) -> Sample:
    """Return a sample whose lengths and counts have other names for axes."""
    return dataclasses.replace(
        sample,
        along=None if sample.along is None else in_words(sample.along, words),
        held=tuple(
            each if each.count is None else Held(each.value, in_words(each.count, words))
            for each in sample.held
        ),
    )


def axes_of(sample: Sample) -> frozenset[str]:
    """Return the axes that a sample's lengths and counts speak of."""
    spoken = (sample.along, *(each.count for each in sample.held))
    return frozenset(axis for each in spoken if each is not None for axis in dimension_axes(each))
