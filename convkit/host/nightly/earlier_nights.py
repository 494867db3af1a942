"""Earlier nightly runs, from this home and from MLflow."""

import calendar
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from convkit.host.home import Home
from convkit.host.nightly.nightly_record import FORMAT, NightlyFault, NightlyRun, RecipeResult
from convkit.host.record.processor_record import RecordedProcessor, processor_of
from convkit.host.record.run_record import RunRecord
from convkit.host.track.metric_history import logged_figures
from convkit.protocol.errors import TrackingError
from convkit.protocol.json_codec import CodecError, decode, parse_json

# A nightly run killed longer ago than this is not resumed; the next one starts over.
_RESUMABLE_SECONDS = 20 * 3600.0
# How many of the newest earlier runs the median covers.
_MOST_RUNS = 30
COMMAND = ("convkit", "nightly")


def nightly_folder(home: Home, run: str = "") -> Path:
    """Return the folder of nightly runs, or of one of them."""
    return home.root / "nights" / run


def nightly_runs(home: Home) -> Iterator[NightlyRun]:
    """Yield a home's nightly runs, newest first; damaged files are skipped."""
    for file in sorted(nightly_folder(home).glob("*/nightly.json"), reverse=True):
        try:
            content = parse_json(file.read_text(encoding="utf-8"))
            if content["format"] == FORMAT:
                yield decode(NightlyRun, content)
        except (OSError, ValueError, KeyError, TypeError, CodecError):
            continue


def unfinished_run(home: Home, asked: tuple[str, ...]) -> NightlyRun | None:
    """Return the last nightly run over these recipes if it was killed recently."""
    last = next(nightly_runs(home), None)
    if last is None or last.ended is not None or last.asked != asked:
        return None
    return last if time.time() - last.started < _RESUMABLE_SECONDS else None


def earlier_results(home: Home, recipe: str, since: float) -> list[RecipeResult]:
    """Return a recipe's results since a time (seconds since the epoch), newest first.

    Returns as many as the history needs, plus the regressed ones among them.
    """
    found: list[RecipeResult] = []
    good = 0
    for run in nightly_runs(home):
        if good >= _MOST_RUNS or run.started < since - _RESUMABLE_SECONDS:
            break
        for result in run.recipes:
            if result.recipe == recipe and result.run and result.started >= since:
                found.append(result)
                good += result.status == "green"
    return found


def figure_history(
    earlier: Sequence[RecipeResult],
    logged: Mapping[str, Mapping[str, float]],
    processor: RecordedProcessor,
) -> dict[str, list[float]]:
    """Return the figures of earlier good runs on this kind of processor, by name, newest first.

    `logged` are MLflow's figures by run id. Regressed runs are excluded: an unfixed fault must not
    become the new normal.
    """
    bad = {each.run for each in earlier if each.status != "green"}
    by_run: dict[str, Mapping[str, float]] = dict(logged)
    by_run |= {each.run: each.figures for each in earlier if each.ran_on.computes_as(processor)}
    history: dict[str, list[float]] = {}
    # Ids begin with the time, so the newest sort last.
    for run in sorted(by_run.keys() - bad, reverse=True)[:_MOST_RUNS]:
        for name, value in by_run[run].items():
            history.setdefault(name, []).append(value)
    return history


def read_logged(
    record: RunRecord, home: Home, earlier: Sequence[RecipeResult], since: float
) -> tuple[Mapping[str, Mapping[str, float]], tuple[NightlyFault, ...], tuple[str, ...]]:
    """Return MLflow's figures of earlier nightly runs by run id, with faults and notes.

    It is a fault if MLflow lost runs that this home knows were logged there.
    """
    processor = processor_of(record.host)
    known = [each.run for each in earlier if each.tracked and each.ran_on.computes_as(processor)]
    try:
        logged = logged_figures(record, home.root, " ".join(COMMAND))
    except TrackingError as error:
        message = f"MLflow's history cannot be read: {error}"
        if not known:
            return {}, (), (message,)
        lost = f"{message} ({len(known)} earlier nightly runs were logged there)"
        return {}, (NightlyFault("history", "MLflow", lost),), ()
    recent = {run: values for run, values in logged.items() if _started(run) >= since}
    missing = [run for run in known if run not in logged]
    if not missing:
        return recent, (), ()
    message = (
        f"MLflow's history of {record.recipe} is incomplete: {len(missing)} of {len(known)} nightly"
        f" runs that were logged are gone (the last: {missing[0]}). Restore MLflow's database, or"
        f" accept a run: convkit accept {record.id} --note TEXT"
    )
    return recent, (NightlyFault("history", "MLflow", message),), ()


def _started(run: str) -> float:
    """Return the time (UTC, in whole seconds) encoded in a run's id."""
    try:
        return float(calendar.timegm(time.strptime(run[:15], "%Y%m%d-%H%M%S")))
    except ValueError:
        return 0.0
