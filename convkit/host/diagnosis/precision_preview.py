"""`convkit inspect RECIPE --precision`: shows how each target's precision affects its modules,
before anything is built.
"""

import dataclasses
import threading
from pathlib import Path

from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import ToolchainKind, gather
from convkit.host.facts.version_sources import recipe_tools
from convkit.host.home import Home
from convkit.host.plan.stages import Stage, plan_stages, precision_id
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe
from convkit.host.stages.stage_executor import execute
from convkit.host.stages.stage_outcome import Settled
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import Store
from convkit.protocol.errors import UsageError, WorkerError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import PrecisionResult


@dataclasses.dataclass(frozen=True)
class TargetPlan:
    """One target's precision plan and the findings about it."""

    target: str
    plan: PrecisionResult
    findings: tuple[Finding, ...]


def preview_precision(
    recipe: Path, home: Home, only: tuple[str, ...], toolchain: ToolchainKind, listener: Listener
) -> list[TargetPlan]:
    """Run the precision stages, and what they need, of all low-precision targets; return their
    plans.

    Finished stages are reused. Raises UsageError if no target has a low precision, WorkerError if a
    stage does not finish.
    """
    loaded = load_recipe(recipe)
    absent = absent_parts(loaded.recipe, home, toolchain, may_resolve=False)
    planned = plan_stages(loaded.recipe, only, frozenset(absent))
    wanted = [stage for stage in planned if stage.kind == "precision"]
    if not wanted:
        raise UsageError(
            f"{recipe}: no target has a low precision; write precision: float16 under a target"
        )
    stages = _with_needs(wanted, planned)
    settled = _settle(loaded, stages, home, toolchain, listener)
    return [_target_plan(stage, settled) for stage in wanted]


def _with_needs(wanted: list[Stage], planned: tuple[Stage, ...]) -> tuple[Stage, ...]:
    needed = {stage.id for stage in wanted}
    for stage in reversed(planned):  # in reverse dependency order
        if stage.id in needed:
            needed.update(stage.needs)
    return tuple(stage for stage in planned if stage.id in needed)


def _settle(
    loaded: LoadedRecipe,
    stages: tuple[Stage, ...],
    home: Home,
    toolchain: ToolchainKind,
    listener: Listener,
) -> dict[str, Settled]:
    surroundings = gather(
        loaded, stages, home, toolchain, recipe_tools(loaded, home, may_resolve=True)
    )
    cancelled = threading.Event()
    runner = StageRunner(loaded, surroundings, home, Store(home.store), listener, cancelled)
    with in_use(home.store):
        return execute(stages, runner, listener, cancelled, jobs=2)


def _target_plan(stage: Stage, settled: dict[str, Settled]) -> TargetPlan:
    assert stage.target is not None
    found = settled[precision_id(stage.target)]
    if not isinstance(found.result, PrecisionResult):
        cause = (
            settled[found.report.error].report if found.report.error in settled else found.report
        )
        errors = [
            f"{finding.code} {finding.message}" for finding in cause.findings if finding.is_error
        ]
        raise WorkerError(
            f"{cause.id} did not finish: {'; '.join(errors) or cause.error or cause.reason}"
        )
    return TargetPlan(stage.target, found.result, found.report.findings)
