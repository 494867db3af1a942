"""What `convkit run` does when stages must run: it runs them, judges the targets and leaves a run's
folder.

Apart from `host/run/run_command.py`, because a run that is up to date needs none of this and should
not wait for its imports.
"""

import dataclasses
import functools
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence

from convkit.host.facts.code_digests import code_digests
from convkit.host.facts.observed_files import opened_in
from convkit.host.facts.planning_facts import ResolvedFacts, describe_host, gather
from convkit.host.facts.version_sources import Resolver
from convkit.host.plan.stage_requests import joined_models
from convkit.host.plan.stages import reference_id
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.processes.fork_servers import close_unneeded, expect_stages, forking
from convkit.host.processes.residents import Residents
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import (
    FORMAT,
    RunRecord,
    StageReport,
    TargetReport,
    worst_status,
)
from convkit.host.run.checked_out_commit import checked_out_commit
from convkit.host.run.run_folder import locks_of, stage_file, write_folder
from convkit.host.run.run_key import run_key
from convkit.host.run.run_materials import locked_in, materials_of
from convkit.host.run.run_options import RunOutcome, RunWork
from convkit.host.stages.stage_executor import execute
from convkit.host.stages.stage_outcome import Settled
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.store import Store
from convkit.host.verdict.findings.departure_from_original import with_feasible_remedies
from convkit.host.verdict.findings.skipped_case_remedies import with_all_skips
from convkit.host.verdict.target_reports import Finished, exit_code, judge_targets, own_findings
from convkit.host.verdict.waivers import day_of
from convkit.protocol.installation import full_version


def run_stages(work: RunWork, tools: Resolver, known: ResolvedFacts | None = None) -> RunOutcome:
    """Run or reuse every stage, and write the run's folder. Raises as `run_recipe` does. `known`
    are facts that were gathered a moment ago, without resolving or fetching anything.
    """
    started = time.time()
    work.store.sweep()
    seconds = _past_seconds(work)
    for stage in work.stages:
        work.listener.stage_waiting(stage.id, seconds.get(stage.id))
    options = work.options
    surroundings = (
        known
        if known is not None and known.are_complete(work.stages)
        else gather(work.loaded, work.stages, options.home, options.toolchain, tools, fetch=True)
    )
    cancelled = threading.Event()
    ending = threading.Thread(
        target=_prepare_end, args=(work, surroundings), name="prepare-end", daemon=True
    )
    ending.start()
    try:
        settled = _settled(work, surroundings, seconds, cancelled)
        targets = _judged(work, settled, started)
        if options.explain and any(target.status != "verified" for target in targets):
            settled = _explained(work, surroundings, settled, targets, started, cancelled)
            targets = _judged(work, settled, started)
        ending.join()
        return _finish(work, surroundings, settled, targets, started)
    finally:
        work.store.release_views()


def _explained(
    work: RunWork,
    surroundings: ResolvedFacts,
    settled: dict[str, Settled],
    targets: tuple[TargetReport, ...],
    started: float,
    cancelled: threading.Event,
) -> dict[str, Settled]:
    """Return the stages with the causes of what failed, and with remedies that were tried."""
    from convkit.host.run.failure_causes import Causes  # noqa: PLC0415 - most runs fail nowhere, and importing these takes time
    from convkit.host.trials.recipe_trials import Laboratory  # noqa: PLC0415 - as above
    from convkit.host.trials.tried_remedies import TriedRemedies  # noqa: PLC0415 - as above

    home, toolchain = work.options.home, work.options.toolchain
    for graph in work.loaded.graphs:
        causes = Causes(graph, surroundings, home, work.store, work.listener, cancelled)
        own = tuple(target for target in targets if target.name in graph.recipe.targets)
        settled = causes.added(settled, own)
        laboratory = Laboratory(graph, home, toolchain, work.store, cancelled, day_of(started))
        settled = TriedRemedies(laboratory, work.listener).added(settled, own)
    return settled


def _prepare_end(work: RunWork, surroundings: ResolvedFacts) -> None:
    """Prepare what the end of every run needs, independent of its stages' results: digest the files
    of convkit and of the tools, compile the report's templates. The first stages import their tools
    one after another, so a core is idle meanwhile.
    """
    from convkit.host.report.report_file import prepare_templates  # noqa: PLC0415 - as in `write_folder`

    try:
        prepare_templates(code_digests(work.store.root).own())
        materials_of(work.loaded, surroundings, work.options.home)
        locked_in(work.stages, surroundings, work.options.home, {})
    except Exception:  # noqa: BLE001 - the end of the run does the same, and reports what is wrong
        return


def _past_seconds(work: RunWork) -> dict[str, float]:
    """Return how long each stage took in this recipe's last run, by id."""
    past = {stage.id: work.store.latest(work.loaded.recipe.name, stage.id) for stage in work.stages}
    return {name: record.seconds for name, record in past.items() if record is not None}


def _settled(
    work: RunWork,
    surroundings: ResolvedFacts,
    seconds: Mapping[str, float],
    cancelled: threading.Event,
) -> dict[str, Settled]:
    """Run or reuse all stages, here or on the fleet; return them by id. `seconds` are those of the
    last run.
    """
    options = work.options
    given = WORKERS[options.toolchain]
    residents = Residents.of(options.home, os.environ) if options.resident else None
    with forking(given, residents) as workers:
        runner = StageRunner(
            work.loaded,
            surroundings,
            options.home,
            work.store,
            work.listener,
            cancelled,
            force=options.force,
            absent=work.absent,
            variation=options.variation,
            rerun=options.rerun,
            workers=workers,
        )
        settler = runner if work.fleet is None else work.fleet.settler(runner, work.listener)
        jobs = options.jobs if work.fleet is None else work.fleet.jobs(options.jobs)
        own = workers if workers is not given else None  # others may be used by further runs
        expect_stages(own, work.stages)
        left = functools.partial(close_unneeded, own)
        return execute(
            work.stages, settler, work.listener, cancelled, jobs=jobs, seconds=seconds, left=left
        )


def _judged(
    work: RunWork, settled: Mapping[str, Settled], started: float
) -> tuple[TargetReport, ...]:
    """Return the verdict on each target. Waivers count as of the day on which the run started."""
    finished = {name: Finished(stage.report, stage.result) for name, stage in settled.items()}
    planned = [stage.target for stage in work.stages if stage.kind in ("verify", "join")]
    names = [name for name in planned if name]
    return judge_targets(work.loaded.recipe, names, finished, day_of(started))


def _reported(settled: Mapping[str, Settled], stage: str, recipe: Recipe) -> StageReport:
    """Return a stage's report for the record, with its log if it wrote any, without what an export
    has already explained, and with remedies that the original could follow.
    """
    finished = {name: Finished(each.report, each.result) for name, each in settled.items()}
    kind, slash, part = stage.partition("/")
    export = finished.get(f"export{slash}{part}") if kind == "reference" else None
    findings = list(own_findings(finished[stage], export))
    if not slash:  # targets of parts have findings of their own
        original = settled[reference_id(recipe)].report
        findings = with_all_skips(with_feasible_remedies(findings, recipe, original), recipe)
    log = f"logs/{stage_file(stage)}.log" if settled[stage].log.strip() else None
    return dataclasses.replace(settled[stage].report, findings=tuple(findings), log=log)


def _finish(
    work: RunWork,
    surroundings: ResolvedFacts,
    settled: Mapping[str, Settled],
    targets: tuple[TargetReport, ...],
    started: float,
) -> RunOutcome:
    options, loaded, stages = work.options, work.loaded, work.stages
    record = _recorded(work, surroundings, settled, targets, started)
    reports = record.stages
    materials = dataclasses.replace(
        materials_of(loaded, surroundings, options.home, _opened_files(reports, work.store)),
        locked=locked_in(
            stages, surroundings, options.home, {report.id: report.versions for report in reports}
        ),
    )
    folder = write_folder(
        record,
        settled,
        locks_of(stages, surroundings),
        materials,
        work.store,
        options.home,
        joined_models(loaded.recipe),
    )
    # A later run of the same recipe would take this one's record as its own.
    unexplained = not options.explain and any(
        target.status in ("failed", "waived") for target in record.targets
    )
    if (
        not unexplained
        and all(report.status in ("hit", "done") for report in reports)
        and all(work.store.record(report.key) is not None for report in reports)
    ):
        if options.track:
            work.store.mark_unlogged(folder)
        work.store.settle_run(record.key, folder, code_digests(work.store.root).own())
    return RunOutcome(record, folder)


def _recorded(
    work: RunWork,
    surroundings: ResolvedFacts,
    settled: Mapping[str, Settled],
    targets: tuple[TargetReport, ...],
    started: float,
) -> RunRecord:
    options, loaded, lineage = work.options, work.loaded, work.lineage
    recipe = loaded.recipe
    status = worst_status([target.status for target in targets])
    reports = tuple(_reported(settled, stage.id, recipe) for stage in work.stages)
    keys = {report.id: report.key for report in reports}
    return RunRecord(
        format=FORMAT,
        convkit=full_version(),
        id=time.strftime("%Y%m%d-%H%M%S-", time.gmtime(started)) + secrets.token_hex(2),
        key=run_key(recipe, keys, day_of(started)),
        recipe=recipe.name,
        recipe_file=os.path.relpath(loaded.path),
        recipe_folder=str(loaded.dirname),
        recipe_commit=checked_out_commit(loaded.dirname),
        recipe_text=loaded.text,
        recipe_digest=loaded.digest,
        description=recipe.description,
        experiment=recipe.track.experiment or f"convkit/{recipe.name}",
        contract=contract_of(recipe),
        command=options.command,
        toolchain=surroundings.facts.toolchain,
        host=describe_host(surroundings.facts.toolchain)
        | ({"fleet": options.scheduler} if options.scheduler else {}),
        started=started,
        ended=time.time(),
        status=status,
        exit_code=exit_code(status),
        stages=reports,
        targets=targets,
        repaired_from=lineage.repaired_from if lineage else None,
        repair=lineage.ended_as(targets) if lineage else (),
        withdrawn=lineage.withdrawn if lineage else (),
        provenance=True,
    )


def _opened_files(reports: Sequence[StageReport], store: Store) -> dict[str, str]:
    """Return the files that a run's models were loaded from, with digests."""
    records = (store.record(report.key) for report in reports)
    found: dict[str, str] = {}
    for record in records:
        found |= opened_in(record.ingredients) if record is not None else {}
    return found
