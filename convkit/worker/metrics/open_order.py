"""Outputs that differ only in the order of equal scores, which the original leaves open."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class OpenOrder:
    """How many elements of an output are others in the built model, and count as equal."""

    case: str
    output: str
    differing: int
    elements: int


def open_orders(case: str, expected: Arrays, found: Arrays, judged: Arrays) -> Iterator[OpenOrder]:
    """Yield the outputs of which elements are judged as equal that are not; `judged` is what is
    compared in place of `found`.
    """
    for name, values in expected.items():
        one, other = found.get(name), judged.get(name)
        if one is None or other is None or one is other or one.shape != values.shape:
            continue
        count = int(((one != values) & (other == values)).sum())
        if count:
            yield OpenOrder(case, name, count, values.size)


def open_order_findings(orders: Sequence[OpenOrder]) -> list[Finding]:
    """Return N516 for each such output, at the first case that shows it."""
    first: dict[str, OpenOrder] = {}
    for order in orders:
        first.setdefault(order.output, order)
    return [_finding(order) for order in first.values()]


def _finding(order: OpenOrder) -> Finding:
    return Finding(
        "N516",
        f"{order.differing} of {order.elements} elements of {order.output!r} in case"
        f" {order.case!r} are others than the original's, where the scores that they are chosen by"
        " are equal or differ by rounding only: any order of those is right, and torch promises"
        " none",
        Place(tensor=order.output, case=order.case),
        {"differing": order.differing, "elements": order.elements},
        Remedy(
            "If callers need the same order everywhere, break ties in the model: add a small"
            " multiple of the position to the scores (torch.arange(n) * 1e-6)."
        ),
    )
