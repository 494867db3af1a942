"""`convkit report`: where a run's HTML report is, and opening it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, Run


def report(
    run: Run,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write a new report of the run to FILE, with its last benchmark.",
        ),
    ] = None,
    home: HomeFolder = None,
) -> None:
    """Print the path of a run's HTML report, or open it."""
    from convkit.host.home import Home
    from convkit.host.run.run_selection import find_run

    folder = find_run(run, Home.find(home))
    path = _existing(folder) if output is None else _written(folder, output)
    typer.echo(str(path))
    if open_it:
        open_in_browser(path)


def _existing(folder: Path) -> Path:
    from convkit.host.report.report_file import REPORT_NAME
    from convkit.protocol.errors import UsageError

    path = folder / REPORT_NAME
    if not path.is_file():
        raise UsageError(f"{path} does not exist. Write a new report: --output FILE")
    return path


def _written(folder: Path, output: Path) -> Path:
    """Write a new report elsewhere: the run's own files are compared byte for byte by the audit."""
    from convkit.host.record.bench_record import latest_bench
    from convkit.host.report.report_file import write_report_file
    from convkit.host.run.run_folder import read_record
    from convkit.protocol.errors import UsageError

    if output.is_dir():
        raise UsageError(f"--output {output}: is a folder. Name a file in it.")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--output {output}: is in the run's own folder, which stays as the run left it."
            " Choose another place."
        )
    if not output.resolve().parent.is_dir():
        raise UsageError(f"--output {output}: the folder {output.parent} does not exist")
    base = os.path.relpath(folder.resolve(), output.resolve().parent)
    bench = latest_bench(folder)
    return write_report_file(read_record(folder), output, base=Path(base).as_posix(), bench=bench)


def open_in_browser(path: Path) -> None:
    """Open a page in the user's browser; raises UsageError if there is none."""
    import webbrowser

    from convkit.protocol.errors import UsageError

    if not webbrowser.open(path.resolve().as_uri()):
        raise UsageError(f"found no browser to open {path} with; set BROWSER, or open it yourself")
