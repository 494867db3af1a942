"""`convkit history`: how each recipe fared in every nightly run of a home.

Reads the JSON of nightly runs as it is, without building their types: a thousand of them take a
fraction of a second. A damaged file is named, not passed over.
"""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from convkit.host.home import Home
from convkit.host.nightly.earlier_nights import nightly_folder
from convkit.host.nightly.figure_limits import HISTORY_ALLOWANCE
from convkit.host.nightly.nightly_record import FORMAT
from convkit.host.report.history_page import Cell, History, NightlyLink, RecipeRow, Series
from convkit.host.report.report_file import REPORT_NAME
from convkit.host.run.run_folder import read_record
from convkit.host.track.metric_history import figures_of
from convkit.protocol.errors import ConvkitError
from convkit.protocol.json_codec import Json, parse_json

# The figures that get a chart, where a run has them.
_METRICS = ("max_abs_err", "size_bytes", "single_call_seconds")
_MARKS = {"green": "✓", "waived": "⚠", "regressed": "✗", "broken": "✗"}
MOST_RUNS = 60


@dataclasses.dataclass(frozen=True)
class NightResult:
    """A recipe's result in one nightly run."""

    recipe: str
    status: str
    run: str
    baseline: str
    verdicts: dict[str, str]
    figures: dict[str, float]
    faults: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The status; `waived` if it is green and a target is only waived."""
        if self.status == "green" and "waived" in self.verdicts.values():
            return "waived"
        return self.status


@dataclasses.dataclass(frozen=True)
class NightlyResults:
    """One nightly run, with its results by recipe."""

    id: str
    started: float
    results: dict[str, NightResult]


@dataclasses.dataclass(frozen=True)
class NightlyHistory:
    """All nightly runs of a home, oldest first, and the files that cannot be read."""

    nightly_runs: tuple[NightlyResults, ...]
    unreadable: tuple[str, ...]


def read_nightly_runs(home: Home) -> NightlyHistory:
    """Return a home's nightly runs."""
    nightly_runs, unreadable = [], []
    for file in sorted(nightly_folder(home).glob("*/nightly.json")):
        try:
            nightly_runs.append(_results(parse_json(file.read_bytes())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            unreadable.append(f"{file}: {type(error).__name__}: {error}")
    return NightlyHistory(tuple(nightly_runs), tuple(unreadable))


def _results(content: Json) -> NightlyResults:
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}, this convkit reads {FORMAT}")
    results = {
        each["recipe"]: NightResult(
            each["recipe"],
            each["status"],
            each["run"],
            each["baseline"],
            dict(each["verdicts"]),
            {name: float(value) for name, value in each["figures"].items()},
            tuple(fault["message"] for fault in each["faults"]),
        )
        for each in content["recipes"]
    }
    return NightlyResults(content["id"], float(content["started"]), results)


def history_of(home: Home, nightly_runs: Sequence[NightlyResults], page: Path) -> History:
    """Return what the history page at `page` shows: links are relative to its folder."""
    shown = nightly_runs[-MOST_RUNS:][::-1]
    names = sorted({name for nightly_run in nightly_runs for name in nightly_run.results})
    return History(
        tuple(
            NightlyLink(each.id, _day(each.id), _summary_link(nightly_folder(home, each.id), page))
            for each in shown
        ),
        tuple(_row(name, nightly_runs, shown, home, page) for name in names),
        len(nightly_runs),
    )


def _row(
    name: str,
    nightly_runs: Sequence[NightlyResults],
    shown: Sequence[NightlyResults],
    home: Home,
    page: Path,
) -> RecipeRow:
    results = [nightly_run.results.get(name) for nightly_run in nightly_runs]
    baseline = next((each.baseline for each in reversed(results) if each is not None), "")
    accepted = _figures_of_run(home, name, baseline, results)
    return RecipeRow(
        name,
        baseline,
        tuple(_cell(nightly_run.results.get(name), home, page) for nightly_run in shown),
        tuple(_series(results, accepted)),
    )


def _figures_of_run(
    home: Home, recipe: str, run: str, results: Sequence[NightResult | None]
) -> dict[str, float]:
    """Return the figures of the accepted run: from the nightly run that made it, or its record."""
    for each in results:
        if each is not None and run and each.run == run:
            return each.figures
    if run:
        with contextlib.suppress(ConvkitError):
            return figures_of(read_record(home.runs_of(recipe) / run))
    return {}


def _series(results: Sequence[NightResult | None], accepted: dict[str, float]) -> Iterator[Series]:
    names = dict.fromkeys(name for each in results if each is not None for name in each.figures)
    for name in names:
        target, _, metric = name.rpartition("/")
        if metric in _METRICS:
            values = [each.figures.get(name) if each is not None else None for each in results]
            base = accepted.get(name)
            last = next((value for value in reversed(values) if value is not None), None)
            worse = (
                base is not None
                and last is not None
                and not (last <= base * (1 + HISTORY_ALLOWANCE[metric]))
            )
            yield Series(target, metric, tuple(values[-MOST_RUNS:]), base, worse)


def _cell(result: NightResult | None, home: Home, page: Path) -> Cell | None:
    if result is None:
        return None
    verdicts = ", ".join(f"{target} {status}" for target, status in result.verdicts.items())
    label = "; ".join(filter(None, [f"{result.recipe}: {result.shown}", verdicts, *result.faults]))
    folder = home.runs_of(result.recipe) / result.run
    link = (
        _link(folder, REPORT_NAME, page)
        if result.run and (folder / REPORT_NAME).is_file()
        else None
    )
    return Cell(result.shown, mark_of(result.shown), label, link)


def _summary_link(folder: Path, page: Path) -> str:
    """Return the link to a nightly run's summary; one that was killed has only its results."""
    name = "nightly.md" if (folder / "nightly.md").is_file() else "nightly.json"
    return _link(folder, name, page)


def _link(folder: Path, name: str, page: Path) -> str:
    relative = os.path.relpath(folder / name, page.absolute().parent)
    return quote(Path(relative).as_posix())


def _day(run: str) -> str:
    """Return the month and day of a nightly run's id."""
    return f"{run[4:6]}-{run[6:8]}" if run[:8].isdigit() else run


def mark_of(status: str) -> str:
    """Return the sign for a status."""
    return _MARKS.get(status, "✗")


def parity_of(result: NightResult) -> float | None:
    """Return the largest absolute error of any target; NaN if any is, None if there is none."""
    found = [value for name, value in result.figures.items() if name.endswith("/max_abs_err")]
    return max(found, key=lambda value: (math.isnan(value), value), default=None)


def spark(values: Sequence[float | None], *, ascii_only: bool = False) -> str:
    """Return values as a line of blocks, on a logarithmic scale; `?` is not a positive number."""
    blocks = "_.-=*#" if ascii_only else "▁▂▃▄▅▆▇█"
    good = [math.log10(v) for v in values if v is not None and v > 0 and math.isfinite(v)]
    low, high = min(good, default=0.0), max(good, default=0.0)
    text = ""
    for value in values:
        if value is None:
            text += " "
        elif value > 0 and math.isfinite(value):
            share = (math.log10(value) - low) / (high - low) if high > low else 0.0
            text += blocks[round(share * (len(blocks) - 1))]
        else:
            text += "?"
    return text
