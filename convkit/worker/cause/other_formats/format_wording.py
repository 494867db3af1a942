"""Findings about a translated model in the words of its own format."""

import dataclasses
import re

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.worker.cause.other_formats.source_operation import TURNED
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph, owner
from convkit.worker.graph.operators.node_builder import INSIDE

_ONNX_NODE = r"\b[A-Z]\w+ "


def in_own_words(
    finding: Finding, translated: TranslatedGraph, remedy: Remedy | None = None
) -> Finding:
    """Return a finding with the model's own operations in place of ONNX's nodes; a `remedy`
    replaces the graph's.
    """
    place, message = finding.place, finding.message
    for name in {name for name in (place.node, place.tensor) if name}:
        outer, _, inner = name.partition(INSIDE)
        kind = translated.kinds.get(outer)
        if kind is not None:
            called = f"{kind} {outer} ({inner})" if inner else f"{kind} {outer}"
            message = re.sub(f"{_ONNX_NODE}{re.escape(name)}(?![\\w/])", called, message)
    place = dataclasses.replace(
        place,
        node=None if place.node is None else owner(place.node),
        tensor=None if place.tensor is None else owner(place.tensor),
    )
    message = message.replace(TURNED, "").replace(INSIDE, " ")
    return dataclasses.replace(
        finding, message=message, place=place, remedy=remedy or finding.remedy
    )
