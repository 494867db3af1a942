"""Determines whether a baseline was ever accepted for a recipe whose baseline file is missing.

A deleted baseline must not look like one that never existed. Three places record an acceptance: the
home (a note next to the accepted run), version control (the file's history) and MLflow (an alias).
Any one of them is enough.
"""

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from convkit.host.audit.checks.recorded_inputs import recipe_path
from convkit.host.audit.past_runs.later_records import Acceptance, newest_acceptance
from convkit.host.audit.past_runs.run_folders import run_folders
from convkit.host.home import Home
from convkit.host.nightly.baseline import SUFFIX, baseline_file
from convkit.host.run.run_folder import read_record
from convkit.host.track.metric_history import accepted_in_mlflow
from convkit.protocol.errors import ConvkitError, TrackingError

ALIAS = "baseline"
_GIT_SECONDS = 20


def newest_acceptances(home: Home) -> dict[str, Acceptance]:
    """Return the latest acceptance of each recipe known to this home."""
    names = dict.fromkeys(folder.parent.name for folder in run_folders(home))
    found = {name: _newest(name, home) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def acceptance_folders(recipe: str, home: Home) -> list[Path]:
    """Return the folders of a recipe's runs, where notes of acceptance are stored.

    Earlier releases stored them elsewhere, and a home may have both.
    """
    known = (folder.parent for folder in run_folders(home) if folder.parent.name == recipe)
    return list(dict.fromkeys((home.runs_of(recipe), *known)))


def _newest(recipe: str, home: Home) -> Acceptance | None:
    found = (newest_acceptance(runs) for runs in acceptance_folders(recipe, home))
    return max((each for each in found if each), key=lambda each: each.when, default=None)


def accepted_before(recipe: Path, name: str, home: Home, *, track: bool) -> str | None:
    """Return the source that records an accepted baseline for a recipe, or None."""
    known = _newest(name, home)
    if known is not None:
        # The home takes precedence: a retired recipe has history, but no baseline.
        return None if known.retired else f"run {known.run} was accepted on {_day(known)}"
    file = baseline_file(recipe)
    if (commit := _last_commit(file)) is not None:
        return f"commit {commit} has {file.name}"
    if track:
        try:
            run = accepted_in_mlflow(name, home.root, ALIAS)
        except TrackingError:
            return None
        if run is not None:
            return f"MLflow's alias {ALIAS} of {name} is run {run}"
    return None


def missing_recipes(folders: Iterable[Path], home: Home) -> list[Path]:
    """Return recipes that have a baseline and belong in these folders, but are missing.

    A renamed or deleted recipe leaves its baseline behind; if both are gone, this home may still
    have a record of the acceptance.
    """
    wanted = {folder.resolve() for folder in folders}
    missing = [
        file.with_name(file.name.removesuffix(SUFFIX) + ".yaml")
        for folder in sorted(wanted)
        for file in sorted(folder.glob(f"*{SUFFIX}"))
    ]
    for name, acceptance in newest_acceptances(home).items():
        recipe = _accepted_file(acceptance, name, home)
        if recipe is not None and not acceptance.retired and recipe.parent.resolve() in wanted:
            missing.append(recipe)
    return [file for file in dict.fromkeys(missing) if not _recipe_exists(file)]


def _recipe_exists(recipe: Path) -> bool:
    return any(recipe.with_suffix(ending).is_file() for ending in (".yaml", ".yml"))


def _accepted_file(acceptance: Acceptance, name: str, home: Home) -> Path | None:
    if acceptance.recipe_file:
        return Path(acceptance.recipe_file)
    for runs in acceptance_folders(name, home):  # earlier releases did not record it
        try:
            return recipe_path(read_record(runs / acceptance.run))
        except ConvkitError:
            continue
    return None


def _last_commit(file: Path) -> str | None:
    """Return the last commit that touched a file, on any branch; None without git or history.

    A shallow clone has only the newest commits, so the result may be None there.
    """
    command = ["git", "-C", str(file.parent), "log", "--all", "-1", "--format=%h", "--", file.name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _day(acceptance: Acceptance) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(acceptance.when))
