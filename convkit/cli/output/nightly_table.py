"""A nightly run, a reproduction and an acceptance on the terminal."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from convkit.cli.output.safe_text import output_console
from convkit.host.audit.past_runs.later_records import CLASSES
from convkit.host.audit.reproduce_command import ReproductionReport
from convkit.host.nightly.accept_command import Accepted
from convkit.host.nightly.markdown_report import outcome_text, summary_rows
from convkit.host.nightly.nightly_record import NightlyRun

_MOST_LINES = 10


def print_reproduction(report: ReproductionReport) -> None:
    """Print each artifact's class, its differences, and what else changed."""
    for each in report.artifacts:
        good = CLASSES.index(each.likeness) <= CLASSES.index("NUMERIC_OK")
        _print((each.likeness, "green" if good else "red"), f"  {each.target}")
        lines = [*each.where[:_MOST_LINES]]
        if len(each.where) > _MOST_LINES:
            lines.append(f"and {len(each.where) - _MOST_LINES} more")
        lines += [f"changed: {text}" for text in each.why[:_MOST_LINES]]
        for text in lines:
            _print(f"    {text}")
    _print(f"\nReproduced run {report.run} in {report.seconds:.0f} s with {report.varied}")


def print_nightly(run: NightlyRun, folder: Path) -> None:
    """Print the summary, the regressions, and where to find the rest."""
    table = Table("recipe", "status", "targets", "baseline", "seconds", box=None, pad_edge=False)
    for row in summary_rows(run):
        table.add_row(*(plain(cell) for cell in row))
    output_console().print(table)
    for each in run.recipes:
        for fault in each.faults:
            _print("\n", (each.recipe, "red"), f": {fault.message}")
        for text in each.waivers:
            _print(f"\n{each.recipe}: waiver: ", (text, "yellow"))
        for text in (
            *(f"better: {text}" for text in each.improvements),
            *(f"another processor: {text}" for text in each.elsewhere),
            *each.notes,
        ):
            _print(f"\n{each.recipe}: {text}")
    for text in run.environments:
        _print("\n", (text, "red"))
    for canary in run.canaries:
        newer = f" ({', '.join(canary.newer[:4])})" if canary.newer else ""
        text = f"{canary.recipe} with {canary.kind} tools: {canary.status}{newer} {canary.headline}"
        _print(f"canary: {text}")
        for line in canary.changed:
            _print(f"  changed: {line}")
    _print(f"\n{outcome_text(run)}")
    word = "green" if run.green else "NOT green"
    _print(f"{word}: {folder}/nightly.md, junit.xml, nightly.json")


def print_accepted(accepted: Accepted) -> None:
    """Print the baseline's file, and how it is looser or stricter than the previous one."""
    _print(f"{accepted.run} is the baseline of {accepted.recipe}: commit {accepted.file}")
    if accepted.changes is None:
        return
    for text in (
        *(f"accepted: {fault.message}" for fault in accepted.changes.faults),
        *(f"better: {text}" for text in accepted.changes.improvements),
        *accepted.changes.elsewhere,
        *accepted.changes.notes,
    ):
        _print(f"  {text}")


def _print(*parts: str | tuple[str, str]) -> None:
    safe = (plain(each) if isinstance(each, str) else (plain(each[0]), each[1]) for each in parts)
    output_console().print(Text.assemble(*safe), soft_wrap=True)


def plain(text: str) -> str:
    """Return text without control characters, except for line breaks."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\ufffd"
        for character in text
    )
