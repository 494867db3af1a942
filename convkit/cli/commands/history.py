"""`convkit history`: recipes by nightly runs, as a page and on the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder
from convkit.protocol.errors import UsageError

if TYPE_CHECKING:
    from convkit.host.nightly.history_trend import NightlyResults

_TERMINAL_RUNS = 14
_STYLES = {"green": "green", "waived": "yellow", "regressed": "bold red", "broken": "bold red"}
_ASCII = {"✓": "+", "⚠": "w", "✗": "x"}


def history(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Where to write the page. [HOME/history.html]"
        ),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    home: HomeFolder = None,
) -> None:
    """Show every recipe's nightly runs and figures."""
    from convkit.host.home import Home
    from convkit.host.nightly.history_trend import history_of, read_nightly_runs
    from convkit.host.report.history_page import write_history

    place = Home.find(home)
    found = read_nightly_runs(place)
    for line in found.unreadable:
        typer.echo(f"warning: {line}", err=True)
    if not found.nightly_runs:
        raise UsageError(f"{place.root} has no nightly runs; start one with convkit nightly")
    page = output or place.root / "history.html"
    if page.is_dir():
        raise UsageError(f"--output {page}: is a folder. Name a file in it.")
    write_history(history_of(place, found.nightly_runs, page), page)
    _print(found.nightly_runs)
    typer.echo(f"\n{page}")
    if open_it:
        from convkit.cli.commands.report import open_in_browser

        open_in_browser(page)


def _print(nightly_runs: "tuple[NightlyResults, ...]") -> None:
    """Print a line per recipe: the last nightly runs, and the course of its worst parity."""
    from rich.table import Table
    from rich.text import Text

    from convkit.cli.output.safe_text import output_console
    from convkit.host.nightly.history_trend import mark_of, parity_of, spark

    console = output_console()
    ascii_only = console.options.ascii_only
    last = nightly_runs[-_TERMINAL_RUNS:]
    table = Table("recipe", "last runs", "worst max_abs", "status", box=None, pad_edge=False)
    for name in sorted({name for nightly_run in nightly_runs for name in nightly_run.results}):
        results = [nightly_run.results.get(name) for nightly_run in last]
        marks = Text()
        for each in results:
            if each is None:
                marks.append(" ")
                continue
            mark = mark_of(each.shown)
            marks.append(_ASCII[mark] if ascii_only else mark, style=_STYLES.get(each.shown, ""))
        known = [each for each in results if each is not None]
        shown = known[-1].shown if known else "did not run lately"
        course = [parity_of(each) if each is not None else None for each in results]
        table.add_row(
            Text(name),
            marks,
            Text(spark(course, ascii_only=ascii_only)),
            Text(shown, style=_STYLES.get(shown, "")),
        )
    console.print(table)
    first, end = last[0].id, last[-1].id
    count = len(nightly_runs)
    span = first if first == end else f"{first} to {end}"
    console.print(
        f"{count} nightly run{'' if count == 1 else 's'}; the table shows {span}", highlight=False
    )
