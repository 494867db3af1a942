"""What a parser's answer means: findings about refused nodes and changed types. Pure."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.runtimes.tensorrt.asked_parser import Origin, Refused, Retyped

_MOST_NAMED = 100
_FLOATS = ("float64", "float32", "float16", "bfloat16")
REWRITE = (
    "Export with a different opset or exporter, which may use other operators, or rewrite that"
    " computation in the model; neither was tried on this model."
)


def refusal_findings(
    refused: Sequence[Refused],
    who: str,
    code: Literal["E213", "T105"],
    remedy: Callable[[Refused], str],
    evidence: dict[str, Json],
) -> Iterator[Finding]:
    """Yield one finding for each operator (or input) and reason that a parser refuses; `who` is the
    library and its release, as in `TensorRT-RTX 1.7.1.116`.
    """
    groups: dict[tuple[str, str, str], list[Refused]] = {}
    for each in refused:
        key = (each.origin.operator, each.tensor, _reason(each))
        groups.setdefault(key, []).append(each)
    for (operator, tensor, reason), group in groups.items():
        origin = group[0].origin
        what = operator or "the graph"
        if tensor:
            what = f"the input {tensor!r}" if not origin.node else f"{what}'s constant {tensor!r}"
        types = f" ({origin.types})" if origin.types else ""
        count = f", and {len(group) - 1} more" if len(group) > 1 else ""
        yield Finding(
            code,
            f"{who} refuses {what}{types}{_at(origin)}{count}: {reason}",
            Place(
                tensor=tensor or None,
                node=origin.node or None,
                module=origin.module or None,
                source=origin.source or None,
            ),
            {
                "operator": operator,
                "types": origin.types,
                "nodes": [each.origin.node for each in group[:_MOST_NAMED]],
                "message": group[0].message,
                **evidence,
            },
            Remedy(remedy(group[0])),
        )


def retyped_findings(
    retyped: Sequence[Retyped], who: str, evidence: dict[str, Json]
) -> Iterator[Finding]:
    """Yield T106 for float types and T107 for others that a parser changes without an error: one
    finding for each pair of types, at the first node.
    """
    groups: dict[tuple[str, str], list[Retyped]] = {}
    for each in retyped:
        groups.setdefault((each.planned, each.built), []).append(each)
    for (planned, built), group in groups.items():
        origin = group[0].origin
        tensors = f"{len(group)} tensor{'s' if len(group) > 1 else ''}"
        first = f"{origin.operator}{_at(origin)}" if origin.node else f"{group[0].tensor!r}"
        is_float = planned in _FLOATS and built in _FLOATS
        yield Finding(
            "T106" if is_float else "T107",
            f"{who} builds {tensors} of {planned} as {built}, without an error: first {first}",
            Place(
                tensor=group[0].tensor or None,
                node=origin.node or None,
                module=origin.module or None,
                source=origin.source or None,
            ),
            {
                "planned": planned,
                "built": built,
                "tensors": [each.tensor for each in group[:_MOST_NAMED]],
                **evidence,
            },
            Remedy(
                f"Compute in {built} in the model itself, so that every runtime does the same."
                if is_float
                else "Quantize symmetrically with a signed type (precision.symmetric: true in a"
                " recipe)."
            ),
        )


def _at(origin: Origin) -> str:
    node = f" at {origin.node}" if origin.node else ""
    return node + (f" in {origin.module}" if origin.module else "")


def _reason(refused: Refused) -> str:
    """Return the parser's reason without the node's name, which differs between nodes."""
    text, node = refused.message, refused.origin.node
    return re.sub(rf"(?<!\w){re.escape(node)}(?!\w)", "the node", text) if node else text
