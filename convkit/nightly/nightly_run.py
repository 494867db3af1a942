"""Runs recipes one by one and saves each result, so that a killed nightly run can resume."""

import dataclasses
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from convkit.errors import ConvkitError, UsageError
from convkit.execute.events import Listener, SilentListener
from convkit.execute.tools import recipe_tools
from convkit.home import Home
from convkit.nightly.acceptances import missing_recipes
from convkit.nightly.canary import run_canary
from convkit.nightly.environments import damaged_environments
from convkit.nightly.history import nightly_folder, unfinished_run
from convkit.nightly.model import FORMAT, Canary, NightlyRun
from convkit.nightly.recipe_check import NightlyOptions, check_recipe
from convkit.recipe.loading import load_recipe
from convkit.store.digests import write_json


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
            found.append(run_canary(file, kind, Home(scratch), usual, options.jobs))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return found


def _save(run: NightlyRun, home: Home) -> None:
    write_json(nightly_folder(home, run.id) / "nightly.json", run)


def _new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
