"""`convkit plan`: shows what a run would do."""

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Literal

from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import ToolchainKind, gather
from convkit.host.facts.version_sources import recipe_tools
from convkit.host.home import Home
from convkit.host.plan.stage_keys import (
    FAILED,
    NEW,
    explain_change,
    ingredients,
    possible_keys,
    same_but_inputs,
    stage_key,
)
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.changed_lines import causes_of, taken_back
from convkit.host.run.run_command import settled_records
from convkit.host.run.run_folder import read_record
from convkit.host.store.store import Store
from convkit.protocol.errors import ConvkitError

# In which it is looked up whether a stage's check failed: a few rounds of a repair, and the run
# before them.
_MOST_RUNS = 8


@dataclasses.dataclass(frozen=True)
class Forecast:
    """One stage: `key` is unknown until the artifacts it reads exist. `reason`: why it must run.
    `causes`: the lines of the recipe (`file:line: key`) and the files that have changed since the
    recipe's last run and are why, for it or for the stages that it waits for.
    """

    stage: str
    state: Literal["hit", "run"]
    key: str | None
    reason: str
    tools: dict[str, str]
    causes: tuple[str, ...] = ()


def forecast(
    recipe: Path, home: Home, only: tuple[str, ...], toolchain: ToolchainKind
) -> list[Forecast]:
    """Return what a run would do, stage by stage. Resolves no tools and starts no process."""
    loaded = load_recipe(recipe)
    absent = absent_parts(loaded.recipe, home, toolchain, may_resolve=False)
    stages = plan_stages(loaded.recipe, only, frozenset(absent))
    store = Store(home.store)
    facts = gather(
        loaded, stages, home, toolchain, recipe_tools(loaded, home, may_resolve=False)
    ).facts
    records = settled_records(loaded, stages, facts, store)
    changes = (
        taken_back(loaded, home, only, frozenset(absent)) if len(records) < len(stages) else []
    )
    failed = functools.cache(lambda: failed_keys(home, loaded.recipe.name))
    rows: list[Forecast] = []
    causes: dict[str, list[str]] = {}
    for stage in stages:
        tools = dict(facts.packages.get(stage.environment, {}))
        if stage.id in records:
            rows.append(Forecast(stage.id, "hit", records[stage.id].key, "", tools))
            continue
        inputs = {name: records[name].artifact for name in stage.needs if name in records}
        parts = ingredients(stage, loaded.recipe, facts, inputs)
        if parts is None:
            rows.append(Forecast(stage.id, "run", None, "its tools are not resolved yet", tools))
            continue
        running = [name for name in stage.needs if name not in records]
        before = store.latest(loaded.recipe.name, stage.id)
        if before is None:
            reason = NEW
        elif not running or not same_but_inputs(parts, before.ingredients):
            reason = explain_change(
                parts, inputs, before.ingredients, {n: before.inputs.get(n, "") for n in inputs}
            )
        else:
            reason = f"{' and '.join(running)} must run; cached if the artifact comes out the same"
        key = None if running else stage_key(parts)
        # A stage that has failed is known under a key of what it had read.
        if key is not None and not failed().isdisjoint(possible_keys(parts)):
            rows.append(Forecast(stage.id, "run", key, FAILED, tools))
            continue
        earlier = before.ingredients if before is not None else {}
        own = causes_of(stage, parts, earlier, inputs, facts, changes, loaded)
        causes[stage.id] = own or [line for name in running for line in causes.get(name, ())]
        found = tuple(dict.fromkeys(causes[stage.id]))
        rows.append(Forecast(stage.id, "run", key, reason, tools, found))
    return rows


def failed_keys(home: Home, recipe: str) -> frozenset[str]:
    """Return the keys of the stages whose checks failed in a recipe's latest runs."""
    folders = sorted((home.runs_of(recipe)).glob("*/result.json"), reverse=True)[:_MOST_RUNS]
    keys = set()
    for file in folders:
        with contextlib.suppress(ConvkitError):  # damaged runs say nothing
            record = read_record(file.parent)
            keys |= {
                stage.key
                for stage in record.stages
                if stage.status == "done" and any(each.is_error for each in stage.findings)
            }
    return frozenset(keys)
