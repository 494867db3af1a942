"""The page of `convkit tune`: the frontier as plots and a table. One file, like a run's report.
Pure, except for `write_tune_page`.
"""

import dataclasses
from pathlib import Path

from convkit.host.record.display_text import brief_time_text, bytes_text, ratio_text
from convkit.host.record.latency_statistics import noise_text, waiting_text
from convkit.host.record.tune_record import Candidate, Figures, TuneRecord
from convkit.host.report.report_file import render_page, write_page
from convkit.host.report.scatter_plots import Dot, Scale, scatter_plot
from convkit.host.report.svg_elements import SvgFigure

COLUMNS = ("candidate", "latency", "size", "error")


@dataclasses.dataclass(frozen=True)
class TuneRow:
    """A candidate in a table: its name, its figures as text, and what was decided about it. On the
    frontier, `number` marks it in the plots.
    """

    name: str
    cells: tuple[str, ...]
    candidate: Candidate
    number: str = ""


def write_tune_page(record: TuneRecord, path: Path) -> Path:
    """Write the page; raises StoreError if it cannot be written."""
    return write_page(render_tune(record), path, makes_folder=True)


def render_tune(record: TuneRecord) -> str:
    """Return the page as HTML."""
    return render_page(
        "tune.html.jinja",
        tune=record,
        columns=columns(record),
        original=figure_cells(record.original, record),
        frontier=rows(record, record.with_status("frontier")),
        behind=rows(record, record.with_status("dominated")),
        missed=rows(record, record.with_status("missed")),
        failed=rows(record, record.with_status("failed", "broken", "unproven", "skipped")),
        left_out=record.with_status("left-out"),
        plots=plots(record),
        steady=noise_text(record.noise) if record.noise is not None else "",
        crowded=waiting_text(record.waiting or 0.0),
    )


def columns(record: TuneRecord) -> tuple[str, ...]:
    """Return the columns' names; a task metric has one if the recipe has one."""
    return (*COLUMNS, record.metric) if record.metric else COLUMNS


def rows(record: TuneRecord, candidates: tuple[Candidate, ...]) -> tuple[TuneRow, ...]:
    """Return the rows of a table."""
    numbers = _numbers(record)
    return tuple(
        TuneRow(each.name, figure_cells(each.figures, record), each, numbers.get(each.name, ""))
        for each in candidates
    )


def _numbers(record: TuneRecord) -> dict[str, str]:
    """Return the numbers of the frontier's candidates, in the table's order."""
    return {each.name: str(at) for at, each in enumerate(record.with_status("frontier"), 1)}


def figure_cells(figures: Figures, record: TuneRecord) -> tuple[str, ...]:
    """Return a candidate's figures as text, in the columns' order; '-' for what is unknown."""
    found = [latency_text(figures)]
    found.append("-" if figures.size_bytes is None else bytes_text(figures.size_bytes))
    found.append("-" if figures.error is None else f"{figures.error:.2g}")
    if record.metric:
        found.append("-" if figures.score is None else f"{figures.score:.4g}")
    return tuple(found)


def latency_text(figures: Figures) -> str:
    """Return a latency: '0.48x (2.1 ms)'."""
    if figures.p50 is None:
        return "-"
    absolute = brief_time_text(figures.p50.value)
    ratio = figures.latency
    return absolute if ratio is None else f"{ratio_text(ratio.value)}x ({absolute})"


def plots(record: TuneRecord) -> tuple[SvgFigure, ...]:
    """Return the plots: latency against size, against error and, with a task, against its drop."""
    timed = [each for each in record.candidates if each.figures.latency is not None]
    latency = Scale("latency, times the original's", lambda value: f"{value:.3g}x")
    found = [
        scatter_plot(
            [_dot(record, each, _mebibytes(each.figures.size_bytes)) for each in timed],
            latency,
            Scale("size on disk, MiB", lambda value: f"{value:.3g}"),
            "Latency and size",
        ),
        scatter_plot(
            [_dot(record, each, each.figures.error) for each in timed],
            latency,
            Scale("largest error", lambda value: f"{value:.1g}"),
            "Latency and error",
        ),
    ]
    return tuple(figure for figure in found if figure is not None)


def _mebibytes(size: int | None) -> float | None:
    return None if size is None else size / (1 << 20)


def _dot(record: TuneRecord, candidate: Candidate, value: float | None) -> Dot:
    latency = candidate.figures.latency
    assert latency is not None
    kind = "frontier" if candidate.status == "frontier" else "behind"
    detail = ", ".join(
        f"{name} {cell}"
        for name, cell in zip(
            columns(record)[1:], figure_cells(candidate.figures, record), strict=True
        )
    )
    return Dot(
        candidate.name,
        latency.value,
        float("nan") if value is None else value,
        detail,
        "chosen" if candidate.name == record.chosen else kind,
        _numbers(record).get(candidate.name, candidate.name),
    )
