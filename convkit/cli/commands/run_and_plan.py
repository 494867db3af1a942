"""`convkit run` and `convkit plan`."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Jobs, Json, Only, Quiet, RecipeFile, Toolchain
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from convkit.host.record.run_record import RunRecord
    from convkit.host.repair.repair_command import RepairOutcome
    from convkit.host.run.run_options import RunOptions, RunOutcome


Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="Run stages on this Dask cluster: tcp://host:8786."
    ),
]
SharedStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The fleet's shared store: file://, s3://, gs://. [HOME/shared]",
    ),
]


def run(
    recipe: RecipeFile,
    only: Only = None,
    toolchain: Toolchain = "isolated",
    jobs: Jobs = 2,
    force: Annotated[
        bool, typer.Option("--force", help="Run every stage again, even if its result is cached.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Exit with 5 if a target is unproven, with 4 if one was skipped."
        ),
    ] = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Log the run to MLflow.")
    ] = True,
    repair: Annotated[
        bool, typer.Option("--repair", help="Apply the remedies of findings and rerun.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --repair: save a proven repair to the recipe.")
    ] = False,
    resident: Annotated[
        bool,
        typer.Option(
            "--resident/--no-resident",
            help="Keep what stages import in memory for the next run (never on CI).",
        ),
    ] = True,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Run again when the recipe or a file that it reads has changed."
        ),
    ] = False,
    scheduler: Scheduler = None,
    store: SharedStore = None,
    json: Json = False,
    quiet: Quiet = False,
    home: HomeFolder = None,
) -> None:
    """Export, build and verify every target of a recipe."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.secret_redaction import redacted
    from convkit.protocol.errors import UsageError

    if write and not repair:
        raise UsageError("--write saves what --repair has proven; pass both")
    if watch and (repair or json or strict):
        option = "--repair" if repair else "--json" if json else "--strict"
        raise UsageError(f"--watch runs until Ctrl-C; leave out {option}, or run it afterwards")

    silent = quiet or json
    # On a busy machine, or from a cold disk, this import takes seconds.
    with waiting("starting", quiet=silent):
        from convkit.host.run.run_options import RunOptions

    options = RunOptions(
        recipe=recipe,
        home=Home.find(home),
        only=tuple(only or ()),
        toolchain=toolchain,
        jobs=jobs,
        force=force,
        track=track,
        command=("convkit", *map(redacted, sys.argv[1:])),
        resident=resident,
        scheduler=scheduler,
        shared_store=store,
    )
    if watch:
        from convkit.cli.commands.watch import watch as watch_files

        raise typer.Exit(watch_files(options, lambda: _run(options, silent=silent), silent=silent))
    if not silent:
        _print_advice(recipe, only)
    outcome, repaired = run_or_repair(options, repair=repair, silent=silent)
    if json:
        print_json(outcome.record)
    elif not quiet:
        from convkit.cli.output.run_printing import print_run

        print_run(outcome)
    if repaired is not None:
        _end_repair(repaired, write=write, silent=silent)
    if outcome.untracked is not None:
        typer.echo(f"warning: not logged to MLflow: {outcome.untracked}", err=True)
    raise typer.Exit(outcome.record.exit_code or (_strict_code(outcome.record) if strict else 0))


def _strict_code(record: "RunRecord") -> int:
    """Return the exit code of a run without failures in which not everything was proven."""
    from convkit.protocol.errors import EXIT_SKIPPED, EXIT_UNPROVEN, EXIT_VERIFIED

    statuses = {
        status
        for target in record.targets
        for status in (target.status, *(each.status for each in target.verifications))
    }
    if "unproven" in statuses:
        return EXIT_UNPROVEN
    return EXIT_SKIPPED if "skipped" in statuses else EXIT_VERIFIED


def run_or_repair(
    options: "RunOptions", *, repair: bool, silent: bool
) -> "tuple[RunOutcome, RepairOutcome | None]":
    """Return the run, of a repair the last one, and how the repair ended.

    Raises Interrupted on Ctrl-C.
    """
    from convkit.protocol.errors import Interrupted

    try:
        if not repair:
            return _run(options, silent=silent), None
        repaired = _repair(options, silent=silent)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished stages are kept. Run the same command again to resume"
        ) from None
    return repaired.last, repaired


def _run(options: "RunOptions", *, silent: bool) -> "RunOutcome":
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.host.run.run_command import run_recipe

    with LiveProgress(quiet=silent) as progress:
        return run_recipe(options, progress)


def _repair(options: "RunOptions", *, silent: bool) -> "RepairOutcome":
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.cli.output.repair_text import announce
    from convkit.host.repair.repair_command import repair_recipe

    return repair_recipe(
        options, lambda: LiveProgress(quiet=silent), (lambda _: None) if silent else announce
    )


def _end_repair(outcome: "RepairOutcome", *, write: bool, silent: bool) -> None:
    """Print how the repair ended; write the recipe if that was requested and is proven."""
    from convkit.cli.output.repair_text import print_repair
    from convkit.host.repair.repair_command import write_recipe

    written = write and outcome.repaired
    if written:
        write_recipe(outcome)
    if not silent:
        print_repair(
            outcome, command=shlex.join(["convkit", *sys.argv[1:], "--write"]), written=written
        )


def _print_advice(recipe: "Path", only: "Sequence[str] | None") -> None:
    """Print what is doubtful about a recipe's targets, before anything runs. Notes wait for the
    run's end, which has all findings.
    """
    from convkit.cli.output.text_lines import wrapped
    from convkit.host.recipe.reading.loading import load_recipe
    from convkit.host.verdict.findings.doubtful_settings import advice

    loaded = load_recipe(recipe).recipe
    targets: dict[tuple[str, str], list[str]] = {}
    for name, target in loaded.targets.items():
        for finding in advice(loaded, target) if not only or name in only else ():
            if finding.severity == "note":
                continue
            text = f"{finding.code} {finding.message}"
            targets.setdefault((finding.severity, text), []).append(name)
    for (severity, text), names in targets.items():
        said = f"{severity}: {', '.join(names)}: {text}"
        typer.echo(wrapped(said, sys.stderr), err=True)


def plan(
    recipe: RecipeFile,
    only: Only = None,
    toolchain: Toolchain = "isolated",
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Show which stages would run, and why; start nothing.

    Warns about tolerances and samples that prove little.
    """
    from convkit.cli.output.text_lines import wrapped
    from convkit.host.home import Home
    from convkit.host.run.plan_command import forecast

    _print_advice(recipe, only)
    rows = forecast(recipe, Home.find(home), tuple(only or ()), toolchain)
    if json:
        print_json(rows)
        return
    width = max(len(row.stage) for row in rows)
    typer.echo(f"what a run of {recipe} would do (hit: cached, run: it would run):")
    typer.echo(f"{'stage':{width}}        {'its key':12}  why")
    for row in rows:
        causes = f" ({', '.join(row.causes)})" if row.causes else ""
        stage = f"{row.stage:{width}}  {row.state:4}  {(row.key or '?')[:12]:12}"
        why = f"{row.reason}{causes}"
        line = f"{stage}  {why}".rstrip()
        if "\n" in wrapped(line, sys.stdout):
            line = f"{stage.rstrip()}\n{wrapped(why, sys.stdout, indent=4)}"
        typer.echo(line)
    hits = sum(row.state == "hit" for row in rows)
    typer.echo(f"{hits} of {len(rows)} stages are cached")
    chosen = [text for name in only or () for text in ("--only", name)]
    where = ["--toolchain", toolchain] if toolchain != "isolated" else []
    typer.echo(f"to run: {shlex.join(['convkit', 'run', str(recipe), *chosen, *where])}")
