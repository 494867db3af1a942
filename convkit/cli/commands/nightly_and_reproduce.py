"""Commands that compare runs with earlier ones: `nightly`, `reproduce`, `accept`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Jobs, Json, PolicyFile, Quiet, Run, Toolchain
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from convkit.host.nightly.nightly_record import NightlyRun


def reproduce(
    run: Run,
    files: Annotated[
        Path | None,
        typer.Option(
            "--files",
            metavar="DIR",
            help="Folder that the recipe's relative paths start from. [default: as before]",
        ),
    ] = None,
    jobs: Jobs = 2,
    json: Json = False,
    quiet: Quiet = False,
    home: HomeFolder = None,
) -> None:
    """Rebuild a past run from its record, and compare every artifact."""
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.host.audit.reproduce_command import reproduce as reproduce_run
    from convkit.host.home import Home
    from convkit.host.run.run_selection import find_run
    from convkit.protocol.errors import Interrupted

    place = Home.find(home)
    try:
        with LiveProgress(quiet=quiet or json) as progress:
            report = reproduce_run(
                find_run(run, place), place, files=files, listener=progress, jobs=jobs
            )
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the reproduction was discarded") from None
    if json:
        print_json(report, worst=report.worst)
    elif not quiet:
        from convkit.cli.output.nightly_table import print_reproduction

        print_reproduction(report)
    raise typer.Exit(0 if report.reproduced or report.worst == "SKIPPED_NO_WORKER" else 1)


def nightly(
    recipes: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RECIPE", help="Recipes, or folders of them. [recipes/]"),
    ] = None,
    toolchain: Toolchain = "isolated",
    jobs: Jobs = 2,
    reuse_builds: Annotated[
        bool,
        typer.Option(
            "--reuse-builds",
            help="Reuse exports and builds from the store; verification always runs.",
        ),
    ] = False,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary", help="Also run under the newest tools; failures there are only reported."
        ),
    ] = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Log the runs to MLflow.")
    ] = True,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML here.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write Markdown here.")
    ] = None,
    policy: PolicyFile = None,
    json: Json = False,
    quiet: Quiet = False,
    home: HomeFolder = None,
) -> None:
    """Rerun all recipes; fail if one is worse than its baseline.

    Every recipe is verified anew, and its baseline is reproduced.
    """
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.cli.output.nightly_table import print_nightly
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.protocol.errors import Interrupted

    silent = quiet or json
    # On a busy machine, or from a cold disk, these imports take seconds.
    with waiting("starting", quiet=silent):
        from convkit.host.audit.audit_policy import read_policy
        from convkit.host.nightly.earlier_nights import nightly_folder
        from convkit.host.nightly.nightly_command import recipe_files, run_nightly
        from convkit.host.nightly.recipe_check import NightlyOptions

    trusted = read_policy(policy) if policy is not None else None
    options = NightlyOptions(Home.find(home), toolchain, jobs, reuse_builds, canary, track, trusted)
    files = recipe_files(recipes or [Path("recipes")], options.home)
    try:
        with LiveProgress(quiet=silent) as progress:
            run = run_nightly(files, options, progress, (lambda _: None) if silent else typer.echo)
    except KeyboardInterrupt:
        raise Interrupted("interrupted: run the same command again to resume") from None
    folder = nightly_folder(options.home, run.id)
    _write_summaries(run, folder, junit, markdown)
    if json:
        print_json(run, green=run.green)
    elif not quiet:
        print_nightly(run, folder)
    raise typer.Exit(0 if run.green else 1)


def _write_summaries(
    run: "NightlyRun", folder: Path, junit_file: Path | None, markdown_file: Path | None
) -> None:
    """Write both summaries into the nightly run's folder, and also to the files asked for."""
    from convkit.host.nightly.junit_report import junit
    from convkit.host.nightly.markdown_report import markdown
    from convkit.protocol.errors import storage_error

    xml, text = junit(run), markdown(run)
    outputs = {folder / "junit.xml": xml, folder / "nightly.md": text}
    outputs |= {junit_file: xml} if junit_file is not None else {}
    outputs |= {markdown_file: text} if markdown_file is not None else {}
    for path, content in outputs.items():
        try:
            path.write_text(content, encoding="utf-8")
        except OSError as error:
            raise storage_error(error, path) from error


def accept(
    run: Run,
    note: Annotated[
        str, typer.Option("--note", help="Why; needed if the recipe has a baseline already.")
    ] = "",
    recipe: Annotated[
        Path | None,
        typer.Option(
            "--recipe",
            metavar="FILE",
            help="The recipe file, if it has moved. [default: where it ran]",
        ),
    ] = None,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire", help="Remove the recipe's baseline; the recipe may then be deleted."
        ),
    ] = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Set MLflow's alias `baseline`.")
    ] = True,
    home: HomeFolder = None,
) -> None:
    """Make a run its recipe's baseline.

    The baseline is a file to commit, which nightly runs are compared with.
    """
    from convkit.cli.output.nightly_table import print_accepted
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.nightly.accept_command import accept_run, retire_recipe
    from convkit.host.run.run_selection import find_run

    place = Home.find(home)
    folder = find_run(run, place)
    if retire:
        with waiting("removing the baseline"):
            accepted = retire_recipe(folder, place, note=note, track=track)
        typer.echo(f"{accepted.recipe} has no baseline any more: delete {accepted.file} from git")
    else:
        with waiting("checking the run, and making it the baseline"):
            accepted = accept_run(folder, place, note=note, recipe=recipe, track=track)
        print_accepted(accepted)
    if accepted.untracked is not None:
        typer.echo(f"warning: not recorded in MLflow: {accepted.untracked}", err=True)
