"""Draws how commands grow: a panel of lines for each series, on logarithmic axes, as one SVG."""

from collections.abc import Mapping
from pathlib import Path

from convkit.host.report.svg_elements import Svg, element, group
from convkit.host.report.svg_plots import LogScale, log_scale

Series = Mapping[str, Mapping[int, float]]
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _NAMES = 300.0, 240.0, 44.0, 28.0, 30.0, 14.0
_COLORS = ("#0b6e99", "#c4532d", "#4d7d2f", "#7a4fa3", "#8a6d00", "#555555")
_STYLE = (
    "text { font: 11px sans-serif; fill: #333 } .title { font-weight: bold }"
    " line { stroke: #ddd } polyline { fill: none; stroke-width: 2 }"
)


def draw(series: Mapping[str, Series], path: Path) -> None:
    """Write the plot; each series is a mapping from commands to seconds by size."""
    lines = max(map(len, series.values()))
    height = _HEIGHT + _NAMES * lines
    panels = [
        group(_panel(name, each), transform=f"translate({index * _WIDTH:.0f} 0)")
        for index, (name, each) in enumerate(series.items())
    ]
    picture = element(
        "svg",
        element("style", Svg(_STYLE)),
        element("rect", width=_WIDTH * len(series), height=height, fill="#fff"),
        *panels,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH * len(series):.0f} {height:.0f}",
    )
    path.write_text(picture + "\n", encoding="utf-8")


def _panel(name: str, series: Series) -> list[Svg]:
    sizes = sorted({size for figures in series.values() for size in figures})
    seconds = [value for figures in series.values() for value in figures.values()]
    across = log_scale(sizes, _LEFT, _WIDTH - 14)
    up = log_scale(seconds, _HEIGHT - _BOTTOM, _TOP)
    parts = [element("text", f"seconds by number of {name}", class_="title", x=4.0, y=14.0)]
    parts += [
        mark
        for exponent in up.ticks()
        for mark in (
            element(
                "line",
                x1=_LEFT,
                x2=_WIDTH - 14,
                y1=up.position(10.0**exponent),
                y2=up.position(10.0**exponent),
            ),
            element("text", f"{10.0**exponent:g}", x=8.0, y=up.position(10.0**exponent) + 4),
        )
    ]
    parts += [
        element("text", f"{size:,}", x=across.position(size) - 10, y=_HEIGHT - _BOTTOM + 16)
        for size in sizes
    ]
    for index, (command, figures) in enumerate(series.items()):
        color = _COLORS[index % len(_COLORS)]
        parts.append(_line(figures, across, up, color))
        y = _HEIGHT + _NAMES * index
        parts.append(element("rect", x=8.0, y=y - 9, width=10.0, height=10.0, fill=color))
        parts.append(element("text", command, x=24.0, y=y))
    return parts


def _line(figures: Mapping[int, float], across: LogScale, up: LogScale, color: str) -> Svg:
    places = " ".join(
        f"{across.position(size):.1f},{up.position(value):.1f}" for size, value in figures.items()
    )
    return element("polyline", points=places, stroke=color)
