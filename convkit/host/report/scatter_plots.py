"""Scatter plots of candidates on two logarithmic axes. Pure; standard library only."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from convkit.host.report.svg_elements import Svg, SvgFigure, element, group, picture
from convkit.host.report.svg_plots import WIDTH, shortened

_LEFT, _RIGHT, _TOP, _HEIGHT = 60.0, 14.0, 24.0, 190.0
_PADDING = math.log10(1.35)
_MOST_TICKS = 5


@dataclasses.dataclass(frozen=True)
class Dot:
    """A candidate: its two figures, and what it is in words. `kind` is its place in the search:
    chosen, frontier or behind. `mark` is written beside the dot, unless it is behind.
    """

    label: str
    x: float
    y: float
    detail: str
    kind: str
    mark: str


@dataclasses.dataclass(frozen=True)
class Scale:
    """An axis: its name, and how a tick reads."""

    name: str
    text: Callable[[float], str]


def scatter_plot(dots: Sequence[Dot], x: Scale, y: Scale, title: str) -> SvgFigure | None:
    """Return a plot in which down and left is better, with the frontier's marks; None without a
    dot that has a place on both axes.
    """
    placed = [dot for dot in dots if _has_place(dot.x) and _has_place(dot.y)]
    if not placed:
        return None
    across = _span([dot.x for dot in placed])
    up = _span([dot.y for dot in placed])
    bottom = _TOP + _HEIGHT

    def left(value: float) -> float:
        return _LEFT + _share(value, across) * (WIDTH - _LEFT - _RIGHT)

    def height(value: float) -> float:
        return bottom - _share(value, up) * _HEIGHT

    parts = [element("text", y.name, class_="name", x=0.0, y=11.0)]
    for tick in _ticks(*up):
        level = height(tick)
        ends = {"x1": _LEFT, "x2": WIDTH - _RIGHT, "y1": level, "y2": level}
        parts.append(element("line", class_="grid", **ends))
        parts.append(element("text", y.text(tick), class_="tick", x=_LEFT - 5, y=level + 3))
    for tick in _ticks(*across):
        mark = left(tick)
        parts.append(element("line", class_="grid", x1=mark, x2=mark, y1=_TOP, y2=bottom))
        parts.append(element("text", x.text(tick), class_="name middle", x=mark, y=bottom + 14))
    parts.append(element("text", x.name, class_="name end", x=WIDTH - _RIGHT, y=bottom + 30))
    order = {"behind": 0, "frontier": 1, "chosen": 2}
    marked: list[tuple[float, float]] = []
    parts += [
        _spot(dot, left(dot.x), height(dot.y))
        for dot in sorted(placed, key=lambda each: order[each.kind])
    ]
    for dot in sorted(placed, key=lambda each: -order[each.kind]):
        if dot.kind == "behind":
            continue
        at = (left(dot.x), height(dot.y))
        # Marks never overlap: the table below has all of them.
        if all(max(abs(at[0] - other[0]) / 2, abs(at[1] - other[1])) > 13 for other in marked):
            marked.append(at)
            parts.append(_mark_of(dot, *at))
    facts = "; ".join(f"{dot.label}: {dot.detail}" for dot in placed)
    missing = len(dots) - len(placed)
    description = f"{facts}." + (f" Without a place on the scales: {missing}." if missing else "")
    return SvgFigure(picture(WIDTH, bottom + 36, title, description, *parts), title)


def _has_place(value: float) -> bool:
    return value > 0 and math.isfinite(value)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis as exponents: room on both sides, and a factor of two at least."""
    logs = [math.log10(value) for value in values]
    low, high = min(logs) - _PADDING, max(logs) + _PADDING
    missing = max(math.log10(2) - (high - low), 0.0)
    return low - missing / 2, high + missing / 2


def _share(value: float, span: tuple[float, float]) -> float:
    return (math.log10(value) - span[0]) / (span[1] - span[0])


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two exponents: 1, 2 and 5 in each decade, or decades only if
    those are too many.
    """
    decades = range(math.floor(low), math.ceil(high) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        found = [
            step * 10.0**decade
            for decade in decades
            for step in steps
            if low <= math.log10(step * 10.0**decade) <= high
        ]
        if 2 <= len(found) <= _MOST_TICKS:
            return found
    return found[:: max(1, math.ceil(len(found) / _MOST_TICKS))]


def _spot(dot: Dot, x: float, y: float) -> Svg:
    parts = [element("title", f"{dot.label}: {dot.detail}")]
    if dot.kind == "chosen":
        parts.append(element("circle", class_="ring", cx=x, cy=y, r=8.0))
    parts.append(
        element("circle", class_="dot", cx=x, cy=y, r=3.0 if dot.kind == "behind" else 4.5)
    )
    return group(parts, class_="spot behind hollow" if dot.kind == "behind" else "spot good")


def _mark_of(dot: Dot, x: float, y: float) -> Svg:
    left = x > (WIDTH + _LEFT) / 2
    return element(
        "text",
        shortened(dot.mark, 30),
        class_="worst end" if left else "worst",
        x=x - 11 if left else x + 11,
        y=y + 3.5,
    )
