"""Commands of the night: `nightly`, `reproduce`, `accept`."""

from pathlib import Path
from typing import Annotated

import typer

from convkit.cli.options import HomeFolder, Json, Quiet, Run, Toolchain

Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, max=64, help="Stages that may run at once.")
]


def reproduce(
    run: Run,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files",
            metavar="DIR",
            help="Where the files that the recipe names lie now. [where they were]",
        ),
    ] = None,
    jobs: Jobs = 2,
    json: Json = False,
    quiet: Quiet = False,
    home: HomeFolder = None,
) -> None:
    """Make a past run again from what it recorded, and say how close every artifact comes."""
    from convkit.audit.reproduce import reproduce as make_again
    from convkit.cli.live import LiveProgress
    from convkit.errors import Interrupted
    from convkit.execute.selecting import find_run
    from convkit.home import Home

    place = Home.find(home)
    try:
        with LiveProgress(quiet=quiet or json) as progress:
            report = make_again(
                find_run(run, place), place, files=files, listener=progress, jobs=jobs
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted: nothing of the reproduction was kept") from None
    if json:
        import json as json_module

        from convkit.codec import encode

        typer.echo(json_module.dumps({"worst": report.worst, **_mapping(encode(report))}, indent=1))
    elif not quiet:
        from convkit.cli.night_table import print_reproduction

        print_reproduction(report)
    raise typer.Exit(0 if report.reproduced or report.worst == "SKIPPED_NO_WORKER" else 1)


def nightly(
    recipes: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RECIPE]...", help="Recipes, or folders of them. [recipes/]"),
    ] = None,
    toolchain: Toolchain = "isolated",
    jobs: Jobs = 2,
    reuse_builds: Annotated[
        bool,
        typer.Option(
            "--reuse-builds",
            help="Take exports and builds from the store; verification always runs.",
        ),
    ] = False,
    canary: Annotated[
        bool, typer.Option("--canary", help="Also run under the newest tools; that fails nothing.")
    ] = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Log the runs to MLflow.")
    ] = True,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML here too.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write Markdown here too.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    home: HomeFolder = None,
) -> None:
    """Prove every recipe anew, make its accepted baseline again, and fail on what got worse."""
    from convkit.cli.live import LiveProgress
    from convkit.cli.night_table import print_night
    from convkit.codec import encode
    from convkit.errors import Interrupted, storage_error
    from convkit.home import Home
    from convkit.nightly import outputs
    from convkit.nightly.night import NightOptions, night_folder, recipe_files, run_night

    options = NightOptions(Home.find(home), toolchain, jobs, reuse_builds, canary, track)
    files = recipe_files(recipes or [Path("recipes")])
    silent = quiet or json
    try:
        with LiveProgress(quiet=silent) as progress:
            night = run_night(files, options, progress, (lambda _: None) if silent else typer.echo)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted: run the same command again to go on with the night"
        ) from None
    folder = night_folder(options.home, night.id)
    texts = {
        folder / "junit.xml": outputs.junit(night),
        folder / "night.md": outputs.markdown(night),
    }
    texts |= {junit: outputs.junit(night)} if junit is not None else {}
    texts |= {markdown: outputs.markdown(night)} if markdown is not None else {}
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise storage_error(error, path) from error
    if json:
        import json as json_module

        typer.echo(json_module.dumps({"green": night.green, **_mapping(encode(night))}, indent=1))
    elif not quiet:
        print_night(night, folder)
    raise typer.Exit(0 if night.green else 1)


def accept(
    run: Run,
    note: Annotated[str, typer.Option("--note", help="Why, for people.")] = "",
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Give it MLflow's alias baseline.")
    ] = True,
    home: HomeFolder = None,
) -> None:
    """Make a run its recipe's baseline, which every night makes again."""
    from convkit.execute.selecting import find_run
    from convkit.home import Home
    from convkit.nightly.accepting import accept_run

    place = Home.find(home)
    accepted = accept_run(find_run(run, place), place, note=note, track=track)
    typer.echo(f"{accepted.run} is the baseline of {accepted.recipe}")
    if accepted.untracked is not None:
        typer.echo(f"warning: MLflow does not know: {accepted.untracked}", err=True)


def _mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict)
    return value
