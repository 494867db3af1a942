"""Runs a night: recipe after recipe, each finished one kept, so that a killed night goes on where
it was.
"""

import dataclasses
import json
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from convkit.audit.reproduce import ReproductionReport, reproduce
from convkit.audit.reproductions import CLASSES
from convkit.codec import CodecError, decode
from convkit.errors import ConvkitError, Interrupted, TrackingError, UsageError
from convkit.execute.events import Listener, Silence
from convkit.execute.facts import ToolchainKind
from convkit.execute.run import RunOptions, run_recipe
from convkit.execute.run_folder import read_record
from convkit.execute.tools import recipe_tools
from convkit.home import Home
from convkit.nightly.baseline import damage_of, find_baseline, former_class, worse_verdicts
from convkit.nightly.canary import run_canary
from convkit.nightly.drift import find_drifts
from convkit.nightly.model import FORMAT, Canary, Drift, Night, RecipeNight
from convkit.recipe.loading import load_recipe
from convkit.record.model import RunRecord
from convkit.store.digests import write_json
from convkit.track.history import figures_of, metric_history

# A night that was killed longer ago than this is over; the next one begins anew.
_GOES_ON_SECONDS = 20 * 3600.0
# A time is a neighbour's doing as often as our own.
_NEVER_FAILS = "typical_seconds"


@dataclasses.dataclass(frozen=True)
class NightOptions:
    """What the command line says of a night. With `reuse_builds`, exports and builds may come from
    the store.
    """

    home: Home
    toolchain: ToolchainKind = "isolated"
    jobs: int = 2
    reuse_builds: bool = False
    canary: bool = False
    track: bool = True


def recipe_files(named: Sequence[Path]) -> tuple[Path, ...]:
    """Return the recipes that files and folders name, each once; raises UsageError for what is
    neither.
    """
    found: list[Path] = []
    for path in named:
        if path.is_dir():
            found += sorted(
                file for file in path.glob("*.y*ml") if file.suffix in (".yaml", ".yml")
            )
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such recipe or folder of recipes")
    if not found:
        raise UsageError(f"no recipe (*.yaml) in {', '.join(map(str, named))}")
    return tuple(dict.fromkeys(found))


def run_night(
    files: tuple[Path, ...],
    options: NightOptions,
    listener: Listener | None = None,
    tell: Callable[[str], None] = print,
) -> Night:
    """Run a night over recipes, or go on with one that was killed; what is finished is kept after
    every recipe.

    A broken recipe does not stop the others. Raises Interrupted on Ctrl-C.
    """
    asked = tuple(str(file) for file in files)
    night = unfinished_night(options.home, asked) or Night(FORMAT, _new_id(), time.time(), asked)
    if night.recipes:
        tell(
            f"going on with night {night.id}: {len(night.recipes)} of {len(asked)} recipes are done"
        )
    for file in files[len(night.recipes) :]:
        tell(f"{file}")
        night = dataclasses.replace(
            night, recipes=(*night.recipes, _recipe_night(file, options, listener or Silence()))
        )
        _keep(night, options.home)
    for file in files if options.canary else ():
        night = dataclasses.replace(night, canaries=(*night.canaries, *_canaries(file, options)))
        _keep(night, options.home)
    night = dataclasses.replace(night, ended=time.time())
    _keep(night, options.home)
    return night


def night_folder(home: Home, night: str) -> Path:
    """Return where a night's files lie."""
    return home.root / "nights" / night


def unfinished_night(home: Home, asked: tuple[str, ...]) -> Night | None:
    """Return the last night over these recipes, where it was killed and not long ago."""
    files = sorted((home.root / "nights").glob("*/night.json"))
    for file in reversed(files):
        try:
            night = decode(Night, json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, CodecError):
            continue  # a damaged night is over
        recent = time.time() - night.started < _GOES_ON_SECONDS
        return night if night.ended is None and night.asked == asked and recent else None
    return None


def _recipe_night(file: Path, options: NightOptions, listener: Listener) -> RecipeNight:
    started = time.time()
    try:
        name = load_recipe(file).recipe.name
    except ConvkitError as error:
        return RecipeNight(
            str(file), file.stem, "broken", time.time() - started, regressions=(str(error),)
        )
    try:
        return _prove(file, name, options, listener, started)
    except Interrupted:
        raise
    except ConvkitError as error:
        return RecipeNight(
            str(file), name, "broken", time.time() - started, regressions=(str(error),)
        )


def _prove(
    file: Path, name: str, options: NightOptions, listener: Listener, started: float
) -> RecipeNight:
    """Run a recipe anew and make its baseline again; say what got worse."""
    baseline = find_baseline(name, options.home)
    before = read_record(baseline) if baseline is not None else None
    damaged = damage_of(baseline) if baseline is not None else ()
    reached = former_class(baseline) if baseline is not None else None
    run = RunOptions(
        file,
        options.home,
        toolchain=options.toolchain,
        jobs=options.jobs,
        force=not options.reuse_builds,
        rerun=("verify",),
        track=options.track,
        command=("convkit", "nightly", str(file)),
    )
    outcome = run_recipe(run, listener)
    made = None
    if baseline is not None:
        made = reproduce(
            baseline,
            options.home,
            files=file.absolute().parent,
            listener=listener,
            jobs=options.jobs,
        )
    drifts, notes = _drifts(outcome.record, options)
    if outcome.untracked is not None:
        notes.append(f"not logged to MLflow: {outcome.untracked}")
    if baseline is None:
        notes.append(f"no baseline; accept one: convkit accept {outcome.record.id}")
    regressions = [
        *(f"the baseline's bytes have changed: {each}" for each in damaged),
        *worse_verdicts(before, outcome.record),
        *(_lost_class(made, reached) if made is not None else ()),
        *(str(drift) for drift in drifts if drift.metric != _NEVER_FAILS),
    ]
    return RecipeNight(
        file=str(file),
        recipe=name,
        status="regression" if regressions else "green",
        seconds=time.time() - started,
        run=outcome.record.id,
        verdicts={target.name: target.status for target in outcome.record.targets},
        baseline=baseline.name if baseline is not None else "",
        damaged=damaged,
        reproduction=made,
        drifts=drifts,
        regressions=tuple(regressions),
        notes=(*notes, *(str(drift) for drift in drifts if drift.metric == _NEVER_FAILS)),
    )


def _drifts(record: RunRecord, options: NightOptions) -> tuple[tuple[Drift, ...], list[str]]:
    """Return the figures that drifted away from MLflow's history, and why that could not be told,
    if so.
    """
    if not options.track:
        return (), []
    try:
        history = metric_history(record, options.home.root)
    except TrackingError as error:
        return (), [f"no history: {error}"]
    return find_drifts(figures_of(record), history), []


def _lost_class(made: ReproductionReport, reached: str | None) -> list[str]:
    """Return the artifacts that came out worse than the baseline's did before, or did not come out
    at all.
    """
    bound = CLASSES.index(reached) if reached is not None else CLASSES.index("NUMERIC_OK")
    lost = []
    for artifact in made.artifacts:
        if artifact.likeness == "SKIPPED_NO_WORKER" or CLASSES.index(artifact.likeness) <= bound:
            continue
        told = "; ".join([*artifact.where[:3], *artifact.why[:2]])
        lost.append(
            f"{artifact.target} of the baseline is {artifact.likeness}{f': {told}' if told else ''}"
        )
    return lost


def _canaries(file: Path, options: NightOptions) -> list[Canary]:
    found = []
    for kind in ("allowed", "newest"):
        scratch = options.home.root / "scratch" / f"canary-{secrets.token_hex(3)}"
        scratch.mkdir(parents=True)
        try:
            try:
                usual = recipe_tools(
                    load_recipe(file), options.home, may_resolve=False, strict=False
                )
            except ConvkitError:
                usual = None
            found.append(run_canary(file, kind, Home(scratch), usual, options.jobs))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return found


def _keep(night: Night, home: Home) -> None:
    write_json(night_folder(home, night.id) / "night.json", night)


def _new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
