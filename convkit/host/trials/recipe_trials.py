"""Runs a recipe with one change, for one target, and says whether its verification passes.

A trial is a run of stages like any other: what the change does not touch comes from the store, and
so does a trial that was made before. It leaves no run's folder.
"""

import dataclasses
import datetime as dt
import threading
from collections.abc import Mapping
from typing import Literal

from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import ToolchainKind, gather
from convkit.host.facts.version_sources import Resolver, recipe_tools, recorded_tools
from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.editing.change_text import flow_text
from convkit.host.recipe.editing.key_changes import ChangeError, changed
from convkit.host.recipe.editing.text_editing import EditError, edited
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.host.record.run_record import TargetReport
from convkit.host.stages.stage_executor import execute
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.store import Store
from convkit.host.verdict.target_reports import Finished, judge_targets
from convkit.protocol.errors import ConvkitError, Interrupted
from convkit.protocol.json_codec import Json

Change = dict[str, Json]


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a changed recipe makes of a target. `largest` is the largest absolute error of all
    cases, `why` what kept the trial from running.
    """

    outcome: Literal["right", "wrong", "untried"]
    cases: int = 0
    largest: float | None = None
    why: str | None = None


@dataclasses.dataclass(frozen=True)
class Laboratory:
    """Where trials run: as the run does whose failure they are to explain."""

    loaded: LoadedRecipe
    home: Home
    toolchain: ToolchainKind
    store: Store
    cancelled: threading.Event
    day: dt.date

    def trial(self, target: str, change: Change) -> Trial:
        """Run a target with a change of the recipe; raises Interrupted."""
        try:
            report = self._run(target, change)
        except Interrupted:
            raise
        except (ChangeError, EditError, ConvkitError) as error:
            return Trial("untried", why=" ".join(str(error).split()))
        return outcome_of(report)

    def _run(self, target: str, change: Change) -> TargetReport:
        content = self.loaded.document.content
        wanted = changed(content, change)
        following = parse_recipe(edited(self.loaded.text, wanted), self.loaded.path)
        absent = absent_parts(following.recipe, self.home, self.toolchain, may_resolve=True)
        stages = plan_stages(following.recipe, (target,), frozenset(absent))
        facts = gather(following, stages, self.home, self.toolchain, self._tools(following))
        runner = StageRunner(
            following, facts, self.home, self.store, SilentListener(), self.cancelled, absent=absent
        )
        settled = execute(stages, runner, SilentListener(), self.cancelled, jobs=1)
        finished = {name: Finished(each.report, each.result) for name, each in settled.items()}
        (report,) = judge_targets(following.recipe, [target], finished, self.day)
        return report

    def _tools(self, following: LoadedRecipe) -> Resolver:
        if self.toolchain == "host":
            return recorded_tools({})
        return recipe_tools(following, self.home, may_resolve=True, strict=False)


def outcome_of(report: TargetReport) -> Trial:
    """Return what a target's report says: it is right if it was verified, and nothing else."""
    cases = [case for each in report.verifications for case in each.cases]
    errors = [output.metrics.max_abs for case in cases for output in case.outputs]
    if report.status in ("skipped", "unproven"):
        return Trial("untried", why=report.headline)
    if report.status != "verified" or not cases:
        return Trial("wrong", len(cases), max(errors, default=None))
    return Trial("right", len(cases), max(errors, default=None))


def written(change: Mapping[str, Json]) -> str:
    """Return a change as a sentence names it: `opset: 20`."""
    return ", ".join(
        f"{name.rpartition('.')[2]}: {_plain(value)}" for name, value in change.items()
    )


def _plain(value: Json) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else flow_text(value)
