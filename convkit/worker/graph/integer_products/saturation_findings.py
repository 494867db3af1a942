"""Explains why a quantized model is right on exact processors and wrong on those that saturate:
which nodes, which weights and activations, and what makes it right on both.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.graph.integer_products.family_session import SwitchedProducts
from convkit.worker.graph.integer_products.product_rewriting import SaturatingNode
from convkit.worker.graph.node_modules import nodes_with_modules

Feeds = Mapping[str, np.ndarray]
# How many pairs of a node saturate, and how many it has; None if that is not counted.
Counts = tuple[float, float] | None

# Saturation explains an error that it makes this much larger.
WORSE = 1.2
# Nodes are responsible if, with them alone exact, this share of what saturation adds is gone.
_EXPLAINED = 0.7
# A remedy works if it leaves no more than this share of what saturation adds, and ...
_LEFT = 0.3
# ... one that costs less accuracy than this many times the best one's is as good, if it is simpler.
_AS_GOOD = 1.5
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class RemedyTrial:
    """A change of the quantization, and the error of the examined case in each family."""

    text: str
    change: dict[str, Json]
    exact: float
    saturating: float

    @property
    def worse(self) -> float:
        """The larger of both errors; NaN if either is."""
        return math.nan if math.isnan(self.exact + self.saturating) else max(
            self.exact, self.saturating
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Examined:
    """A case, how far its outputs are from the original's in each family (the largest RMS error
    relative to an output's RMS), and how to measure that.
    """

    case: str
    feeds: Feeds
    exact: float
    saturating: float
    error: Callable[[Mapping[str, np.ndarray]], float]


def responsible(
    switched: SwitchedProducts, examined: Examined, counts: Sequence[Counts]
) -> list[int]:
    """Return the numbers of the nodes whose saturation causes the difference, the largest cause
    first: with these exact and the others saturating, at least 70 % of it is gone. `counts` are
    those of `SwitchedProducts.counts`; nothing saturates if this is empty.
    """
    active = [i for i, count in enumerate(counts) if count is None or count[0] > 0]
    alone = {i: examined.error(switched.run(examined.feeds, [i])) for i in active}
    ranked = sorted(active, key=lambda i: -alone[i] if not math.isnan(alone[i]) else -math.inf)
    added = examined.saturating - examined.exact
    for count in range(1, len(ranked) + 1):
        left = [i for i in active if i not in ranked[:count]]
        error = examined.error(switched.run(examined.feeds, left))
        if error - examined.exact <= (1 - _EXPLAINED) * added:
            return ranked[:count]
    return ranked


def saturation_finding(
    switched: SwitchedProducts,
    numbers: Sequence[int],
    examined: Examined,
    counts: Sequence[Counts],
    quantized: ir.Model,
    trials: Sequence[RemedyTrial],
) -> Finding:
    """Return Q105 for the responsible nodes, at least one, with the remedies that were tried."""
    places = [_origin(quantized, switched.nodes[i]) for i in numbers]
    rows = [
        _row(switched.nodes[i], place, counts[i]) for i, place in zip(numbers, places, strict=True)
    ]
    first, (node, module) = rows[0], places[0]
    share = first["saturated_share"]
    how_many = f"{share:.2%} of the pairs" if isinstance(share, float) else "pairs"
    others = len(rows) - 1
    more = f" and in {others} more node{'s' if others > 1 else ''}" if others else ""
    best = best_trial(trials, examined)
    return Finding(
        "Q105",
        f"{how_many} of 8-bit products saturate in {first['operator']} {node!r} (weights"
        f" {first['weight']!r}, activations {first['activations']!r}){more}: on x86 with AVX2 and"
        f" without VNNI, outputs are off by {examined.saturating:.2%} of their magnitude, elsewhere"
        f" by {examined.exact:.2%}",
        Place(tensor=str(first["weight"]), node=node, module=module or None, case=examined.case),
        {
            "family": "saturating-pairs",
            "error_exact": examined.exact,
            "error_saturating": examined.saturating,
            "nodes": list(rows[:_SHOWN]),
            "tried": [
                {
                    "change": trial.change,
                    "error_exact": _finite(trial.exact),
                    "error_saturating": _finite(trial.saturating),
                }
                for trial in trials
            ],
            "proven": True,
        },
        _remedy(best, trials),
    )


def best_trial(trials: Sequence[RemedyTrial], examined: Examined) -> RemedyTrial | None:
    """Return the first trial that works in both families and costs about as little as the best;
    None if none works.
    """
    limit = examined.exact + _LEFT * (examined.saturating - examined.exact)
    works = [trial for trial in trials if trial.worse <= limit]
    least = min((trial.worse for trial in works), default=math.nan)
    return next((trial for trial in works if trial.worse <= _AS_GOOD * least), None)


def _remedy(best: RemedyTrial | None, trials: Sequence[RemedyTrial]) -> Remedy:
    if best is None:
        tried = "; ".join(f"{trial.text}: {trial.worse:.2%}" for trial in trials)
        note = f" Tried, and not enough: {tried}." if tried else " This was not tried."
        return Remedy(
            "Quantize again with 7-bit weights (precision.reduce_range: true), which never"
            f" saturate, or ship to exact processors only (processors: exact).{note}"
        )
    others = [trial for trial in trials if trial is not best]
    compared = "".join(f"; {trial.text}: {trial.worse:.2%}" for trial in others)
    return Remedy(
        f"{best.text[:1].upper()}{best.text[1:]}: then outputs are off by {best.worse:.2%} at most"
        f" on both kinds of processors{compared}.",
        best.change,
        proven=True,
    )


def _row(node: SaturatingNode, place: tuple[str, str], count: Counts) -> dict[str, Json]:
    saturated = count[0] / count[1] if count is not None and count[1] else None
    return {
        "node": place[0],
        "module": place[1],
        "operator": node.operator,
        "weight": node.weight,
        "activations": node.left,
        "saturated_share": saturated,
        "share_that_can": node.share,
    }


def _origin(quantized: ir.Model, node: SaturatingNode) -> tuple[str, str]:
    """Return the node of the quantized model that a node of the executed graph was fused from, and
    its module; its own name and no module if that is unknown.
    """
    readers = dict(nodes_with_modules(quantized))
    for each, module in readers.items():
        if any(value is not None and value.name == node.weight for value in each.inputs):
            if each.op_type == "DequantizeLinear":
                for user, _ in each.outputs[0].uses():
                    return user.name or node.node, readers.get(user, module) or ""
            return each.name or node.node, module or ""
    for each, module in readers.items():
        if any(value.name == node.output for value in each.outputs):
            return each.name or node.node, module
    return node.node, ""


def origin_module(quantized: ir.Model, node: SaturatingNode) -> str:
    """Return the module of the original that a node of the executed graph belongs to."""
    return _origin(quantized, node)[1]


def _finite(number: float) -> Json:
    return number if math.isfinite(number) else str(number)
