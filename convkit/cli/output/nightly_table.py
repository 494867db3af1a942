"""A nightly run, a reproduction and an acceptance on the terminal."""

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from convkit.cli.output.safe_text import output_console
from convkit.host.audit.past_runs.later_records import CLASSES
from convkit.host.audit.reproduce_command import ReproductionReport
from convkit.host.nightly.accept_command import Accepted
from convkit.host.nightly.markdown_report import outcome_text, summary_rows
from convkit.host.nightly.nightly_record import NightlyRun

_MOST_LINES = 10


def print_reproduction(report: ReproductionReport) -> None:
    """Print each artifact's class, its differences, and what else changed."""
    console = output_console()
    for each in report.artifacts:
        good = CLASSES.index(each.likeness) <= CLASSES.index("NUMERIC_OK")
        console.print(
            f"[{'green' if good else 'red'}]{each.likeness}[/]  {escape(plain(each.target))}",
            highlight=False,
        )
        for line in each.where[:_MOST_LINES]:
            console.print(f"    {escape(plain(line))}", highlight=False, soft_wrap=True)
        if len(each.where) > _MOST_LINES:
            console.print(
                f"    and {len(each.where) - _MOST_LINES} more", highlight=False, soft_wrap=True
            )
        for line in each.why[:_MOST_LINES]:
            console.print(f"    changed: {escape(plain(line))}", highlight=False, soft_wrap=True)
    console.print(
        f"\nReproduced run {report.run} in {report.seconds:.0f} s with {report.varied}",
        highlight=False,
    )


def print_nightly(run: NightlyRun, folder: Path) -> None:
    """Print the summary, the regressions, and where to find the rest."""
    console = output_console()
    table = Table("recipe", "status", "targets", "baseline", "seconds", box=None, pad_edge=False)
    for row in summary_rows(run):
        table.add_row(*(escape(plain(cell)) for cell in row))
    console.print(table)
    for each in run.recipes:
        name = escape(plain(each.recipe))
        for fault in each.faults:
            console.print(
                f"\n[red]{name}[/]: {escape(plain(fault.message))}", highlight=False, soft_wrap=True
            )
        for text in each.waivers:
            console.print(
                f"\n{name}: waiver: [yellow]{escape(plain(text))}[/]",
                highlight=False,
                soft_wrap=True,
            )
        for text in each.improvements:
            console.print(
                f"\n{name}: better: {escape(plain(text))}", highlight=False, soft_wrap=True
            )
        for text in each.elsewhere:
            console.print(
                f"\n{name}: another processor: {escape(plain(text))}",
                highlight=False,
                soft_wrap=True,
            )
        for text in each.notes:
            console.print(f"\n{name}: {escape(plain(text))}", highlight=False, soft_wrap=True)
    for line in run.environments:
        console.print(f"\n[red]{escape(plain(line))}[/]", highlight=False, soft_wrap=True)
    for canary in run.canaries:
        newer = f" ({', '.join(canary.newer[:4])})" if canary.newer else ""
        text = f"{canary.recipe} with {canary.kind} tools: {canary.status}{newer} {canary.headline}"
        console.print(f"canary: {escape(plain(text))}", highlight=False, soft_wrap=True)
    console.print(f"\n{escape(outcome_text(run))}", highlight=False, soft_wrap=True)
    console.print(
        f"{'green' if run.green else 'NOT green'}: {folder}/nightly.md, junit.xml, nightly.json",
        highlight=False,
        soft_wrap=True,
    )


def print_accepted(accepted: Accepted) -> None:
    """Print the baseline's file, and how it is looser or stricter than the previous one."""
    console = output_console()
    console.print(
        f"{accepted.run} is the baseline of {accepted.recipe}: commit {accepted.file}",
        highlight=False,
        soft_wrap=True,
    )
    if accepted.changes is None:
        return
    for fault in accepted.changes.faults:
        console.print(
            f"  accepted: {escape(plain(fault.message))}", highlight=False, soft_wrap=True
        )
    for text in accepted.changes.improvements:
        console.print(f"  better: {escape(plain(text))}", highlight=False, soft_wrap=True)
    for text in (*accepted.changes.elsewhere, *accepted.changes.notes):
        console.print(f"  {escape(plain(text))}", highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """Return text without control characters, except for line breaks."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\ufffd"
        for character in text
    )
