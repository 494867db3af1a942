"""Plots as SVG: figures on a logarithmic scale beside their limit, and bars. Pure; standard library
only.

Nothing is dropped: a figure that has no place on the scale gets a mark in its own band, which
says why. Colors and lines come from the report's style sheet.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from convkit.host.report.svg_elements import Svg, SvgFigure, element, group, picture

# Of what was compared and has no limit: neither good nor bad.
NO_LIMIT = "no limit"
WIDTH = 340.0
_LEFT, _RIGHT = 52.0, 12.0
_TOP, _HEIGHT, _BAND, _GAP = 16.0, 92.0, 17.0, 8.0
_TIMES = "\N{MULTIPLICATION SIGN}"
NOT_FINITE, ZERO = "not finite", "exact"
_CROWDED = 40  # points beyond which marks shrink and stems would merge


@dataclasses.dataclass(frozen=True)
class LogScale:
    """Maps positive numbers to positions: 10**low to `bottom`, 10**high to `top`."""

    low: int
    high: int
    bottom: float
    top: float

    def position(self, value: float) -> float:
        """Return a number's position. Raises ValueError for what a logarithm does not have: zero,
        negative numbers, NaN, infinity.
        """
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{value} has no place on a logarithmic scale")
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.bottom + share * (self.top - self.bottom)

    def ticks(self, most: int = 5) -> tuple[int, ...]:
        """Return the exponents to label: at most `most` whole decades, evenly spaced, 0 among them
        if it is in the range.
        """
        step = max(1, math.ceil((self.high - self.low + 1) / most))
        anchor = 0 if self.low <= 0 <= self.high else self.low
        first = anchor - (anchor - self.low) // step * step
        return tuple(range(first, self.high + 1, step))


def log_scale(values: Iterable[float], bottom: float, top: float) -> LogScale:
    """Return a scale of whole decades around the positive finite values; one decade at least."""
    logs = [math.log10(value) for value in values if value > 0 and math.isfinite(value)]
    low = math.floor(min(logs, default=0.0))
    high = math.ceil(max(logs, default=0.0))
    return LogScale(low, max(high, low + 1), bottom, top)


@dataclasses.dataclass(frozen=True)
class PlotPoint:
    """A figure to plot: of a case, a module, a round.

    `detail` is the whole fact in words. `without` says why there is no figure ('not compared');
    the value is ignored then. `hollow` marks what did not come from a device, or is not affected
    by the limit.
    """

    label: str
    value: float
    detail: str
    passed: bool = True
    without: str | None = None
    hollow: bool = False

    @property
    def band(self) -> str | None:
        """The band for a point that has no place on the scale."""
        if self.without is not None:
            return self.without
        if not math.isfinite(self.value):
            return NOT_FINITE
        return None if self.value > 0 else ZERO


@dataclasses.dataclass(frozen=True)
class PlotAxis:
    """How a plot reads: the limit at 1 with its name, which side of it is bad, the ticks' texts.

    `bad_side` also decides which point is marked as the worst.
    """

    tick: Callable[[int], str]
    limit: str | None = None
    bad_side: Literal["above", "below"] = "above"
    things: str = "cases"


def percent_tick(exponent: int) -> str:
    """Return 10**exponent as a share of a limit: '1 %', '1e-6'; beyond the limit as a factor."""
    if exponent >= 1:
        return f"{10**exponent}{_TIMES}" if exponent < 5 else f"1e{exponent}{_TIMES}"
    return f"{10.0 ** (exponent + 2):g} %" if exponent > -6 else f"1e{exponent}"


def plain_tick(exponent: int) -> str:
    """Return 10**exponent: '0.01', '1000', '1e+06'."""
    return f"{10.0**exponent:g}" if -4 < exponent < 5 else f"1e{exponent}"


def worst_point(points: Sequence[PlotPoint], axis: PlotAxis) -> PlotPoint | None:
    """Return the point to look at: the first without a figure that failed, else the most extreme
    one towards the limit's bad side. None without any.
    """

    def rank(point: PlotPoint) -> tuple[bool, bool, float]:
        if point.band in (None, ZERO):
            value = point.value if axis.bad_side == "above" else -point.value
            return (not point.passed, False, value)
        return (not point.passed, not point.passed, -math.inf)

    return max(points, key=rank, default=None)


def limit_plot(points: Sequence[PlotPoint], axis: PlotAxis, title: str) -> SvgFigure:
    """Return the points from left to right on a logarithmic scale, with the limit as a line."""
    above = list(dict.fromkeys(p.band for p in points if p.band not in (None, ZERO)))
    zeros = any(point.band == ZERO for point in points)
    top = _TOP + (_BAND * len(above) + _GAP if above else 0)
    bottom = top + _HEIGHT
    end = bottom + (_BAND if zeros else 0)
    numbers = [point.value for point in points if point.band is None]
    # A decade below the limit, or its name would cover the band's.
    marks = [1.0, *([0.1] if zeros else [])] if axis.limit else []
    scale = log_scale([*numbers, *marks], bottom, top)
    bands = {name: _TOP + _BAND * (i + 0.5) for i, name in enumerate(above) if name is not None}
    bands[ZERO] = bottom + _BAND / 2
    parts = _grid(scale, axis)
    parts += [_band(name, y) for name, y in bands.items() if name != ZERO or zeros]
    worst = worst_point(points, axis)
    spots = [
        (_x(index, len(points)), bands[point.band] if point.band else scale.position(point.value))
        for index, point in enumerate(points)
    ]
    parts += [
        _mark(point, x, y, len(points), base=end, marked=point is worst)
        for point, (x, y) in zip(points, spots, strict=True)
    ]
    if worst is not None:
        limit = scale.position(1.0) if axis.limit else None
        parts.append(_worst_label(worst, *spots[_index(points, worst)], limit, axis))
    parts += _ends(points, end)
    description = _description(points, worst, axis)
    return SvgFigure(picture(WIDTH, end + 18, title, description, *parts), title)


def _index(points: Sequence[PlotPoint], wanted: PlotPoint) -> int:
    return next(index for index, point in enumerate(points) if point is wanted)


def _x(index: int, count: int) -> float:
    return _LEFT + (index + 0.5) / count * (WIDTH - _LEFT - _RIGHT)


def _grid(scale: LogScale, axis: PlotAxis) -> list[Svg]:
    parts = []
    right = WIDTH - _RIGHT
    for exponent in scale.ticks():
        y = scale.position(10.0**exponent)
        if axis.limit is None or exponent != 0:
            parts.append(element("line", class_="grid", x1=_LEFT, x2=right, y1=y, y2=y))
            parts.append(element("text", axis.tick(exponent), class_="tick", x=_LEFT - 5, y=y + 3))
    if axis.limit is not None:
        y = scale.position(1.0)
        parts.append(element("line", class_="limit", x1=_LEFT, x2=right, y1=y, y2=y))
        parts.append(element("text", axis.limit, class_="tick limit-name", x=_LEFT - 5, y=y + 3))
    return parts


def _band(name: str, y: float) -> Svg:
    """Return the band for points without a place on the scale."""
    return group(
        [
            element(
                "rect",
                class_={ZERO: "band exact", NO_LIMIT: "band open"}.get(name, "band"),
                x=_LEFT,
                y=y - _BAND / 2 + 1,
                width=WIDTH - _LEFT - _RIGHT,
                height=_BAND - 2,
            ),
            element("text", name, class_="tick", x=_LEFT - 5, y=y + 3),
        ]
    )


def _mark(point: PlotPoint, x: float, y: float, count: int, *, base: float, marked: bool) -> Svg:
    crowded = count > _CROWDED
    size = 2.2 if crowded else 4.0
    kind = "good" if point.passed else "bad"
    parts = [element("title", point.detail)]
    if not crowded and base > y + size and point.without != NO_LIMIT:
        parts.append(element("line", class_="stem", x1=x, x2=x, y1=y + size, y2=base))
    if point.without == NO_LIMIT:  # neither within nor beyond the limit: no dot of one that passed
        parts.append(element("path", class_="dash", d=f"M{x - size:.1f} {y:.1f}h{2 * size:.1f}"))
    elif point.passed:
        parts.append(element("circle", class_="dot", cx=x, cy=y, r=size))
    else:  # a shape, because color alone tells nothing to many
        parts.append(
            element(
                "path",
                class_="cross",
                d=f"M{x - size:.1f} {y - size:.1f}l{2 * size:.1f} {2 * size:.1f}"
                f"m0 {-2 * size:.1f}l{-2 * size:.1f} {2 * size:.1f}",
            )
        )
    if marked:
        parts.append(element("circle", class_="ring", cx=x, cy=y, r=size + 3.5))
    return group(parts, class_=f"{kind} hollow" if point.hollow else kind)


def _worst_label(point: PlotPoint, x: float, y: float, limit: float | None, axis: PlotAxis) -> Svg:
    """Return the worst point's name beside its mark: away from the other points, on the side with
    more room, and off the limit's line. Above that line, if the mark is just below it: where the
    worst point is met, no other is beyond. Above all bands, if the mark is in one.
    """
    left = x > (WIDTH + _LEFT) / 2
    if point.band not in (None, ZERO):
        height = _TOP - 4
    elif axis.bad_side == "above" and limit is not None and y - 20 < limit < y:
        height = limit - 5
    else:
        height = y + 17 if axis.bad_side == "below" or y < _TOP + 14 else y - 11
    return element(
        "text",
        shortened(point.label, 30),
        class_="worst end" if left else "worst",
        x=x - 10 if left else x + 10,
        y=height,
    )


def _ends(points: Sequence[PlotPoint], end: float) -> list[Svg]:
    """Return the first and the last name below the plot."""
    if not points:
        return []
    parts = [element("text", shortened(points[0].label, 22), class_="name", x=_LEFT, y=end + 13)]
    if len(points) > 1:
        last = shortened(points[-1].label, 22)
        parts.append(element("text", last, class_="name end", x=WIDTH - _RIGHT, y=end + 13))
    return parts


def _description(points: Sequence[PlotPoint], worst: PlotPoint | None, axis: PlotAxis) -> str:
    if worst is None:
        return f"No {axis.things}."
    bands = [point.band for point in points if point.band not in (None, ZERO)]
    counts = [f"{bands.count(name)} {name}" for name in dict.fromkeys(bands)]
    failed = sum(not point.passed for point in points)
    facts = [f"{len(points)} {axis.things}", *counts]
    if axis.limit is not None:
        facts.append(f"{failed} beyond the limit" if failed else "none beyond the limit")
    return f"{', '.join(facts)}. Worst: {worst.detail}."


def shortened(text: str, most: int) -> str:
    """Return text of at most `most` characters: the end of a long path says more than its start."""
    return text if len(text) <= most else f"…{text[-(most - 1) :]}"


@dataclasses.dataclass(frozen=True)
class Bar:
    """A value on a linear scale from 0, its name above and its figure in words."""

    label: str
    value: float
    text: str


def bar_plot(bars: Sequence[Bar], title: str, *, full: float | None = None) -> SvgFigure:
    """Return horizontal bars; `full` is the value of a full track (default: the largest). With it,
    the bars need no caption.
    """
    finite = [bar.value for bar in bars if math.isfinite(bar.value)]
    whole = max([*finite, full or 0.0], default=0.0)
    parts = []
    for index, bar in enumerate(bars):
        y = 30.0 * index
        known = math.isfinite(bar.value)
        share = (max(bar.value, 0.0) / whole if whole else 0.0) if known else 1.0
        room = max(10, 48 - len(bar.text))
        shape = {"x": 0.0, "y": y + 15, "height": 9.0, "rx": 2.0}
        parts.append(
            group(
                [
                    element("title", f"{bar.label}: {bar.text}"),
                    element("text", shortened(bar.label, room), class_="bar-name", x=0, y=y + 10),
                    element("text", bar.text, class_="bar-text", x=WIDTH, y=y + 10),
                    element("rect", class_="track", width=WIDTH, **shape),
                    element(
                        "rect", class_="bar" if known else "band", width=WIDTH * share, **shape
                    ),
                ]
            )
        )
    if full is not None and whole > 1.01 * full > 0:  # a bar goes beyond what it is compared with
        x = WIDTH * full / whole
        parts.append(element("line", class_="whole", x1=x, x2=x, y1=12, y2=30.0 * len(bars)))
    facts = "; ".join(f"{bar.label}: {bar.text}" for bar in bars)
    svg = picture(WIDTH, 30.0 * len(bars), title, facts, *parts)
    return SvgFigure(svg, "" if full is not None else title)
