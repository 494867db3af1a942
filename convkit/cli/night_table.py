"""How a night and a reproduction look on the terminal."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from convkit.audit.reproduce import ReproductionReport
from convkit.nightly.model import Night
from convkit.nightly.outputs import summary_rows

_MOST_LINES = 10


def print_reproduction(report: ReproductionReport) -> None:
    """Print each artifact's class, what differs and what goes with it."""
    console = Console()
    for each in report.artifacts:
        good = each.likeness in ("BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL", "NUMERIC_OK")
        console.print(
            f"[{'green' if good else 'red'}]{each.likeness}[/]  {escape(each.target)}",
            highlight=False,
        )
        for line in each.where[:_MOST_LINES]:
            console.print(f"    {escape(line)}", highlight=False)
        if len(each.where) > _MOST_LINES:
            console.print(f"    and {len(each.where) - _MOST_LINES} more", highlight=False)
        for line in each.why[:_MOST_LINES]:
            console.print(f"    with: {escape(line)}", highlight=False)
    console.print(
        f"\nRun {report.run}, made again in {report.seconds:.0f} s under {report.varied}",
        highlight=False,
    )


def print_night(night: Night, folder: Path) -> None:
    """Print the summary, what got worse, and where the rest lies."""
    console = Console()
    table = Table("recipe", "status", "targets", "baseline", "seconds", box=None, pad_edge=False)
    for row in summary_rows(night):
        table.add_row(*map(escape, row))
    console.print(table)
    for each in night.recipes:
        for text in each.regressions:
            console.print(f"\n[red]{escape(each.recipe)}[/]: {escape(text)}", highlight=False)
        for text in each.notes:
            console.print(f"\n{escape(each.recipe)}: {escape(text)}", highlight=False)
    for canary in night.canaries:
        newer = f" ({', '.join(canary.newer[:4])})" if canary.newer else ""
        told = f"{canary.recipe} with {canary.kind} tools: {canary.status}{newer} {canary.headline}"
        console.print(f"canary: {escape(told)}", highlight=False)
    console.print(
        f"\n{'green' if night.green else 'NOT green'}: {folder}/night.md, junit.xml, night.json",
        highlight=False,
    )
