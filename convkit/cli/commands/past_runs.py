"""Commands on past runs: `verify`, `show`, `track`, `ui`."""

import time
from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json, Run
from convkit.cli.output.json_text import print_json


def verify(
    run: Run,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerance", metavar="LIMIT=VALUE", help="Such as max_abs=1e-3; can be repeated."
        ),
    ] = None,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Judge a stored run again without running any model."""
    from convkit.cli.output.run_table import summary
    from convkit.host.home import Home
    from convkit.host.run.rejudging import parse_tolerance, rejudge
    from convkit.host.run.run_selection import find_run
    from convkit.host.verdict.waivers import day_of

    folder = find_run(run, Home.find(home))
    record = rejudge(folder, parse_tolerance(tolerance or []), day_of(time.time()))
    if json:
        print_json(record)
    else:
        from convkit.cli.output.safe_text import output_console

        output_console().print(summary(record, up_to_date=False), crop=False)
    raise typer.Exit(record.exit_code)


def show(run: Run, json: Json = False, home: HomeFolder = None) -> None:
    """Show a past run's table and findings."""
    from convkit.cli.output.run_table import summary
    from convkit.python.runs import Run as PastRun

    opened = PastRun.open(run, home=home)
    if json:
        print_json(opened.record)
        return
    from convkit.cli.output.safe_text import output_console

    view = summary(opened.record, up_to_date=False, folder=opened.folder)
    output_console().print(view, crop=False)


def track(run: Run, home: HomeFolder = None) -> None:
    """Log a finished run to MLflow. Useful if its server was down during the run."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.run.run_folder import read_record
    from convkit.host.run.run_selection import find_run
    from convkit.host.track.run_tracker import prepare

    place = Home.find(home)
    folder = find_run(run, place)
    with waiting("logging to MLflow"):
        tracked = prepare(None, place.root).log(read_record(folder), folder)
    typer.echo(f"logged as {tracked.link or tracked.parent_run_id}")


def ui(
    port: Annotated[int, typer.Option("--port", help="0: any free port.", min=0, max=65535)] = 5000,
    home: HomeFolder = None,
) -> None:
    """Open MLflow's UI on the runs, on this machine only."""
    from convkit.cli.commands.ui import serve_ui
    from convkit.host.home import Home

    serve_ui(Home.find(home).root, port=port)
