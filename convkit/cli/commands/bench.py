"""`convkit bench`: the models of a run against their original, on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json, Only, Toolchain
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from convkit.host.bench.bench_command import BenchOutcome
    from convkit.host.facts.planning_facts import ToolchainKind
    from convkit.host.home import Home
    from convkit.host.processes.progress_events import Listener
    from convkit.host.recipe.keys.bench import Bench
    from convkit.host.recipe.reading.loading import LoadedRecipe


def bench(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN|RECIPE",
            help="A finished run (see convkit show), or a recipe, which is run first.",
        ),
    ],
    only: Only = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="typical, largest, smallest, or batch=1,sequence=128; can be repeated.",
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, max=1024, help="Compute threads of every model."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.01, help="Seconds of measurement per size.")
    ] = None,
    toolchain: Toolchain = "isolated",
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Log the figures to MLflow.")
    ] = True,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Time the targets and their original, side by side.

    Targets that need another device get no figure.

    Exits with 1 if a goal of the recipe is missed.
    """
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.protocol.errors import Interrupted

    place = Home.find(home)
    try:
        with LiveProgress(quiet=json) as progress:
            folder, loaded = _finished_run(what, tuple(only or ()), toolchain, place, progress)
            settings = bench_settings(loaded, size or [], threads, seconds)
            outcome = _measure(folder, loaded, place, settings, progress, tuple(only or ()))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the benchmark was discarded") from None
    untracked = None
    if track:
        with waiting("logging to MLflow", quiet=json):
            untracked = _log(outcome, folder, place)
    if json:
        print_json(outcome.record)
    else:
        from convkit.cli.output.bench_table import bench_summary
        from convkit.cli.output.safe_text import output_console

        output_console().print(bench_summary(outcome.record))
        typer.echo(f"\nfigures: {outcome.file}\nreport:  convkit report {folder} --output FILE")
    if untracked is not None:
        typer.echo(f"warning: not logged to MLflow: {untracked}", err=True)
    raise typer.Exit(outcome.record.exit_code)


def _finished_run(
    what: str, only: tuple[str, ...], toolchain: "ToolchainKind", home: "Home", progress: "Listener"
) -> "tuple[Path, LoadedRecipe]":
    """Return a run's folder and recipe; a recipe is run first, which is quick if it is cached."""
    from convkit.host.audit.checks.recorded_inputs import recorded_recipe
    from convkit.python.runs import Recipe, Run, run

    path = Path(what)
    if path.suffix in (".yaml", ".yml"):
        recipe = Recipe.load(path)
        finished = run(
            recipe,
            only=only,
            home=home.root,
            toolchain=toolchain,
            listener=progress,
            command=("convkit", "bench", what),
        )
        return finished.folder, recipe.loaded
    known = Run.open(what, home=home.root)
    return known.folder, recorded_recipe(known.record, None)


def bench_settings(
    loaded: "LoadedRecipe", sizes: list[str], threads: int | None, seconds: float | None
) -> "Bench":
    """Return the recipe's settings, with the command line's in their place."""
    from convkit.host.recipe.keys.bench import Bench, bench_faults
    from convkit.protocol.errors import UsageError

    own = loaded.recipe.bench.model_dump()
    given = {
        "sizes": [_size(text) for text in sizes] or None,
        "threads": threads,
        "seconds": seconds,
    }
    chosen = own | {name: value for name, value in given.items() if value is not None}
    for fault in bench_faults(loaded.recipe.dump() | {"bench": chosen}):
        raise UsageError(f"--size, axis {fault.path[-1]}: {fault.message}")
    return Bench.model_validate(chosen)


def _size(text: str) -> str | dict[str, int]:
    """Return a size as a recipe has it; raises UsageError."""
    from convkit.protocol.errors import UsageError

    if "=" not in text:
        if text not in ("smallest", "typical", "largest"):
            raise UsageError(
                f"--size {text}: write smallest, typical, largest, or sizes of axes such as"
                " batch=1,sequence=128"
            )
        return text
    sizes = {}
    for part in text.split(","):
        axis, _, value = part.partition("=")
        if not value.isdigit():
            raise UsageError(f"--size {text}: {part!r} is not an axis with a whole number")
        sizes[axis.strip()] = int(value)
    return sizes


def _measure(
    folder: Path,
    loaded: "LoadedRecipe",
    home: "Home",
    settings: "Bench",
    progress: "Listener",
    only: tuple[str, ...],
) -> "BenchOutcome":
    from convkit.host.audit.checks.recorded_inputs import recorded_resolutions
    from convkit.host.bench.bench_command import run_bench
    from convkit.host.facts.version_sources import recorded_tools

    return run_bench(
        folder,
        loaded,
        home,
        lambda stages: recorded_tools(recorded_resolutions(folder, stages)),
        settings,
        progress,
        only,
    )


def _log(outcome: "BenchOutcome", folder: Path, home: "Home") -> str | None:
    """Log the figures to the run's entry in MLflow; return why that failed, if it did."""
    from convkit.host.run.run_folder import read_record
    from convkit.host.track.run_tracker import prepare
    from convkit.protocol.errors import TrackingError

    try:
        prepare(None, home.root).log_bench(read_record(folder), folder, outcome.record)
    except TrackingError as error:
        return str(error)
    return None
