"""The page of `convkit history`: recipes by nightly runs, with small charts of their figures.

One file like a run's report: no script, nothing is fetched. Pure, except for `write_history`.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

from convkit.host.record.display_text import brief_time_text, bytes_text
from convkit.host.report.report_file import render_page, write_page
from convkit.host.report.svg_elements import Svg, element, picture

_WIDTH, _HEIGHT, _MARGIN = 220.0, 48.0, 5.0
_PADDING = math.log10(1.2)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A recipe in one nightly run. `mark` is a sign for it, `label` says it in words, `link` leads
    to the run's report, relative to the page (None if its folder is gone).
    """

    status: str
    mark: str
    label: str
    link: str | None


@dataclasses.dataclass(frozen=True)
class Series:
    """A figure of a target over all nightly runs, oldest first; None where a run lacks it.

    `baseline` is the accepted run's figure, if that is known; `worse`: the last one is worse.
    """

    target: str
    metric: str
    values: tuple[float | None, ...]
    baseline: float | None
    worse: bool = False

    @property
    def latest(self) -> float | None:
        """The last value."""
        return next((value for value in reversed(self.values) if value is not None), None)

    @property
    def summary(self) -> str:
        """The last value and, if known, the baseline's."""
        shown = "no value" if self.latest is None else self._text(self.latest)
        return shown if self.baseline is None else f"{shown} (baseline {self._text(self.baseline)})"

    @property
    def title(self) -> str:
        """The figure's name in words; its unit is with its values."""
        return self.metric.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")

    def _text(self, value: float) -> str:
        if self.metric.endswith("_bytes"):
            return bytes_text(round(value))
        return brief_time_text(value) if self.metric.endswith("_seconds") else f"{value:.3g}"


@dataclasses.dataclass(frozen=True)
class NightlyLink:
    """A nightly run: id, day and link to its summary."""

    id: str
    day: str
    link: str


@dataclasses.dataclass(frozen=True)
class RecipeRow:
    """A recipe: a cell for each nightly run on the page (None: it did not run), and its figures."""

    recipe: str
    baseline: str
    cells: tuple[Cell | None, ...]
    series: tuple[Series, ...]


@dataclasses.dataclass(frozen=True)
class History:
    """What the page shows. `nightly_runs` are the newest of `total`, newest first."""

    nightly_runs: tuple[NightlyLink, ...]
    recipes: tuple[RecipeRow, ...]
    total: int


def write_history(history: History, path: Path) -> Path:
    """Write the page; raises StoreError if it cannot be written."""
    return write_page(render_history(history), path, makes_folder=True)


def render_history(history: History) -> str:
    """Return the page as HTML."""
    return render_page("history.html.jinja", history=history, chart=chart)


def chart(series: Series) -> Svg:
    """Return a figure over time on a logarithmic scale, with the baseline as a dashed line.

    A value without a place on the scale (zero, infinite, NaN) is drawn at the bottom or the top.
    """
    values = [value for value in series.values if value is not None]
    known = [*values, *([series.baseline] if series.baseline is not None else [])]
    logs = [math.log10(value) for value in known if value > 0 and math.isfinite(value)]
    # At least a fifth up and down, so that noise looks like noise.
    low, high = min(logs, default=0.0) - _PADDING, max(logs, default=0.0) + _PADDING

    def height(value: float) -> float:
        if value > 0 and math.isfinite(value):
            share = (math.log10(value) - low) / (high - low)
            return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)
        return _HEIGHT - 1 if value <= 0 else 1.0  # infinite and NaN are worse than any figure

    step = (_WIDTH - 2 * _MARGIN) / max(len(series.values) - 1, 1)
    points = [
        (_MARGIN + index * step, height(value))
        for index, value in enumerate(series.values)
        if value is not None
    ]
    parts = []
    if series.baseline is not None:
        level = height(series.baseline)
        parts.append(element("line", class_="base", x1=0.0, x2=_WIDTH, y1=level, y2=level))
    parts.append(element("polyline", class_="trend", points=_places(points)))
    if points:
        kind = "last worse" if series.worse else "last"
        parts.append(element("circle", class_=kind, cx=points[-1][0], cy=points[-1][1], r=3.0))
    title = f"{series.title} of {series.target}"
    return picture(_WIDTH, _HEIGHT, title, f"{len(values)} runs: {series.summary}", *parts)


def _places(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
