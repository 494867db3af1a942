"""Recipes of a small model, run on a small fleet."""

import threading
from pathlib import Path
from typing import Any

import yaml
from small_fleet import SmallFleet
from small_runs import MODEL, RECIPE

from convkit.host.facts.planning_facts import gather
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.fleet.run_fleet import fleet_of
from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.stages.stage_executor import execute
from convkit.host.stages.stage_outcome import Settled
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.store import Store


def write_recipe(folder: Path, **changes: Any) -> Path:
    """Write a recipe whose model lies beside its folder, which workers do not have."""
    (folder / "recipes").mkdir(parents=True, exist_ok=True)
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "small.py").write_text(MODEL)
    factory = {"factory": {"call": "../models/small.py:build", "seed": 3}}
    recipe = RECIPE | {"model": factory} | changes
    path = folder / "recipes" / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


def run(recipe: Path, home: Path, fleet: SmallFleet, **options: Any) -> RunOutcome:
    given = {
        "scheduler": fleet.address,
        "shared_store": (fleet.folder / "shared").as_uri(),
        **options,
    }
    return run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False, **given))


def settle(
    recipe: Path, home: Path, fleet: SmallFleet, cancelled: threading.Event
) -> dict[str, Settled]:
    """Settle a recipe's stages as a run does, and judge nothing."""
    loaded = load_recipe(recipe)
    stages = plan_stages(loaded.recipe)
    surroundings = gather(loaded, stages, Home(home), "host", recorded_tools({}))
    runner = StageRunner(
        loaded, surroundings, Home(home), Store(home / "store"), SilentListener(), cancelled
    )
    with fleet_of(fleet.address, (fleet.folder / "shared").as_uri(), Home(home)) as opened:
        assert opened is not None
        settler = opened.settler(runner, SilentListener())
        return execute(stages, settler, SilentListener(), cancelled, jobs=opened.jobs(2))
