"""`convkit tune`: finds the targets that are worth having."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from convkit.cli.input.options import HomeFolder, Jobs, Json, RecipeFile, Toolchain
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from convkit.host.recipe.reading.loading import LoadedRecipe
    from convkit.host.record.tune_record import TuneRecord
    from convkit.host.tune.candidate_targets import Space


# What is searched, and how the winner is chosen.
Runtimes = Annotated[
    list[str] | None,
    typer.Option("--runtime", metavar="NAME", help="Only this runtime; can be repeated."),
]
Prefer = Annotated[
    Literal["speed", "size", "accuracy"],
    typer.Option("--prefer", help="What makes a candidate the best."),
]
Like = Annotated[
    str | None,
    typer.Option(
        "--like",
        metavar="TARGET",
        help="Hold new candidates to the tolerance, max_drop and goals of this target.",
    ),
]
# How candidates are timed.
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="SIZE", help="As in convkit bench; the first one decides."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, max=1024, help="Maximum number of compute threads."),
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.01, help="Seconds of measurement per size, at the end."),
]


def tune(
    recipe: RecipeFile,
    runtime: Runtimes = None,
    prefer: Prefer = "speed",
    like: Like = None,
    size: Sizes = None,
    threads: Threads = None,
    seconds: Seconds = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier search has measured.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Add the best candidate to the recipe as a target.")
    ] = False,
    choose: Annotated[
        str | None,
        typer.Option(
            "--choose", metavar="CANDIDATE", help="With --write: this one of the frontier instead."
        ),
    ] = None,
    toolchain: Toolchain = "isolated",
    jobs: Jobs = 2,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Search precisions, runtimes and settings for the best targets.

    Shows which verified builds are the fastest, smallest and most accurate. Interrupt it at any
    time: the same command resumes.

    Exits with 1 if nothing meets the recipe's tolerance and goals.
    """
    from convkit.cli.commands.bench import bench_settings
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.host.home import Home
    from convkit.host.recipe.reading.loading import load_recipe
    from convkit.host.record.tune_record import write_tune
    from convkit.host.report.tune_page import write_tune_page
    from convkit.host.secret_redaction import redacted
    from convkit.host.tune.search_runs import TuneOptions
    from convkit.host.tune.target_search import tune as search
    from convkit.protocol.errors import EXIT_FAILED, Interrupted, UsageError

    if choose is not None and not write:
        raise UsageError("--choose names the candidate that --write adds; pass both")
    place = Home.find(home)
    loaded = load_recipe(recipe)
    space = _space(loaded, tuple(runtime or ()), like)
    options = TuneOptions(
        place,
        bench_settings(loaded, size or [], threads, seconds),
        toolchain,
        jobs,
        prefer,
        fresh,
        ("convkit", *map(redacted, sys.argv[1:])),
    )
    try:
        with LiveProgress(quiet=json) as progress:
            record = search(space, options, progress)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; finished builds and measurements are kept. Run the same command again to"
            " resume"
        ) from None
    file = write_tune(place.root, record)
    page = write_tune_page(record, file.with_suffix(".html"))
    _print(record, file, page, json=json)
    if write:
        _write(loaded, record, choose, silent=json)
    raise typer.Exit(0 if record.chosen is not None else EXIT_FAILED)


def _space(loaded: "LoadedRecipe", only: tuple[str, ...], like: str | None) -> "Space":
    """Return what is searched; raises UsageError for names that do not exist."""
    from convkit.host.tune.candidate_targets import Space
    from convkit.protocol.errors import UsageError
    from convkit.protocol.runtimes.runtime_registry import runtimes

    if loaded.recipe.parts:
        raise UsageError("convkit tune searches recipes of one graph; this one has parts")
    for name in only:
        if name not in runtimes():
            raise UsageError(
                f"--runtime {name}: no such runtime; there are {', '.join(runtimes())}"
            )
    if like is not None and like not in loaded.recipe.targets:
        raise UsageError(
            f"--like {like}: the recipe has no such target; targets:"
            f" {', '.join(loaded.recipe.targets)}"
        )
    return Space(loaded, only, like)


def _print(record: "TuneRecord", file: Path, page: Path, *, json: bool) -> None:
    if json:
        print_json(record)
        return
    from convkit.cli.output.safe_text import output_console
    from convkit.cli.output.tune_table import tune_summary

    output_console().print(tune_summary(record))
    typer.echo(f"\nplots:   {page}\nfigures: {file}")


def _write(
    loaded: "LoadedRecipe", record: "TuneRecord", choose: str | None, *, silent: bool
) -> None:
    """Add a candidate to the recipe's file; raises UsageError if it was not found good."""
    from convkit.host.recipe.editing.file_replacement import recipe_diff, replace_recipe
    from convkit.host.tune.candidate_targets import with_candidate
    from convkit.protocol.errors import UsageError

    good = {each.name: each for each in record.with_status("frontier")}
    name = choose or record.chosen
    if name is None:
        return
    if name not in good:
        raise UsageError(
            f"--choose {name}: not on the frontier; there are {', '.join(good) or 'none'}"
        )
    text = with_candidate(loaded, good[name])
    if text == loaded.text:
        outcome = f"{name} is in the recipe already; nothing was written"
    else:
        outcome = recipe_diff(loaded, text, "tuned")
        outcome += f"Written to {replace_recipe(loaded, text, 'search')}"
    if not silent:
        typer.echo(outcome)
