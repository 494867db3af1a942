"""Runs recipes one by one and saves each result, so that a killed nightly run can resume."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from convkit.host.facts.version_sources import recipe_tools
from convkit.host.home import Home, is_run_id
from convkit.host.nightly.earlier_nights import nightly_folder, unfinished_run
from convkit.host.nightly.newer_tools import run_canary
from convkit.host.nightly.nightly_record import FORMAT, Canary, NightlyRun
from convkit.host.nightly.recipe_check import NightlyOptions, check_recipe
from convkit.host.nightly.recorded_acceptances import missing_recipes
from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import write_json
from convkit.host.toolchain.environments.environment_builds import damaged_environments as damage_in
from convkit.protocol.errors import ConvkitError, UsageError

_SHORT = 12
_MOST_FILES = 5


def recipe_files(named: Sequence[Path], home: Home | None = None) -> tuple[Path, ...]:
    """Return the recipes in the given files and folders, without duplicates.

    With a home, includes recipes that have a baseline but are gone from a named folder, so that
    their absence is noticed. Raises UsageError if an argument is neither a file nor a folder.
    """
    found: list[Path] = []
    for path in named:
        if path.is_dir():
            found += sorted(
                file for file in path.glob("*.y*ml") if file.suffix in (".yaml", ".yml")
            )
            found += missing_recipes([path], home) if home is not None else []
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"{path}: no such recipe or folder of recipes")
    if not found:
        raise UsageError(f"no recipe (*.yaml) in {', '.join(map(str, named))}")
    return tuple(dict.fromkeys(found))


def run_nightly(
    files: tuple[Path, ...],
    options: NightlyOptions,
    listener: Listener | None = None,
    tell: Callable[[str], None] = print,
) -> NightlyRun:
    """Check recipes, or resume a killed nightly run; saves the result after every recipe.

    A broken recipe does not stop the others. Raises Interrupted on Ctrl-C.
    """
    asked = tuple(str(file) for file in files)
    run = unfinished_run(options.home, asked) or NightlyRun(FORMAT, _new_id(), time.time(), asked)
    if run.recipes:
        tell(f"resuming nightly run {run.id}: {len(run.recipes)} of {len(asked)} recipes are done")
    # Before anything runs in them; again when resuming, since days may have passed.
    run = dataclasses.replace(run, environments=damaged_environments(options.home))
    _save(run, options.home)
    for file in files[len(run.recipes) :]:
        tell(f"{file}")
        result = check_recipe(file, options, listener or SilentListener())
        run = dataclasses.replace(run, recipes=(*run.recipes, result))
        _save(run, options.home)
    for file in files if options.canary else ():
        run = dataclasses.replace(run, canaries=(*run.canaries, *_canaries(file, options)))
        _save(run, options.home)
    run = dataclasses.replace(run, ended=time.time())
    _save(run, options.home)
    return run


def _canaries(file: Path, options: NightlyOptions) -> list[Canary]:
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
            before = _last_run(file, options.home)
            found.append(run_canary(file, kind, Home(scratch), usual, options.jobs, before))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return found


def _last_run(file: Path, home: Home) -> RunRecord | None:
    """Return the recipe's last run, with its usual tools; None if there is none to read."""
    try:
        folders = home.runs_of(load_recipe(file).recipe.name).iterdir()
        return read_record(max(path for path in folders if is_run_id(path.name)))
    except (ConvkitError, OSError, ValueError):
        return None


def _save(run: NightlyRun, home: Home) -> None:
    write_json(nightly_folder(home, run.id) / "nightly.json", run)


def _new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def damaged_environments(home: Home) -> tuple[str, ...]:
    """Return a line for each environment with modified files, as `convkit env verify` reports
    them.
    """
    lines = []
    for folder, wrong in damage_in(home.root).items():
        named = ", ".join(map(str, wrong[:_MOST_FILES]))
        more = f" and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
        lines.append(
            f"environment {folder.name[:_SHORT]} is damaged: {named}{more}. Run convkit env verify"
            " --remove; the next run rebuilds it"
        )
    return tuple(lines)
