"""What `convkit run --repair` prints in addition to the run itself."""

from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable, output_console
from convkit.cli.output.text_lines import line, print_unwrapped
from convkit.host.recipe.editing.change_text import change_line
from convkit.host.record.run_record import RepairStep

if TYPE_CHECKING:
    from rich.console import Console

    from convkit.host.repair.repair_command import RepairOutcome

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def announce(steps: tuple[RepairStep, ...]) -> None:
    """Print on standard error what the next round changes."""
    from rich.console import Console

    console = Console(stderr=True, markup=False, emoji=False)
    for step in steps:
        what = f"{step.code} of {step.target}: {change_line(step.change)}"
        console.print(Encodable(line((f"repair, round {step.round}: ", "bold"), what)))


def print_repair(
    outcome: "RepairOutcome", *, command: str, written: bool, console: "Console | None" = None
) -> None:
    """Print how the repair ended, the change to the recipe, and how to save it.

    `written`: the change is already in the recipe's file. `command`: the command that would write
    it. The diff and the command are not wrapped, so that they can be copied.
    """
    console = console or output_console()
    word, style = (
        ("Not repaired", "bold red")
        if outcome.needed and not outcome.repaired
        else ("Repair", "bold")
    )
    console.print()
    unsaved = "" if written or not outcome.repaired else "; the recipe's file is not changed yet"
    console.print(Encodable(line((f"{word}: ", style), f"{outcome.ending}{unsaved}")))
    if not outcome.repaired:
        for each in outcome.withheld:
            shown = change_line({each.path: each.value})
            print_unwrapped(
                console,
                f"  {each.code} of {each.target} suggests ",
                (shown, "cyan"),
                f"; {each.reason}",
            )
    if outcome.diff:
        console.print(Encodable(line(f"Recipe change, {_effect(outcome)}:")))
        for text in outcome.diff.splitlines():
            print_unwrapped(console, text, style=_DIFF_STYLES.get(text[:1], ""))
    if outcome.repaired and written:
        print_unwrapped(console, f"Written to {outcome.loaded.path}")
    elif outcome.repaired:
        console.print(line("Next:", style="bold"))
        print_unwrapped(console, "  ", (command, "cyan"))
        console.print("      write this change into the recipe")


def _effect(outcome: "RepairOutcome") -> str:
    """Return what the change has made of the targets: all, some or none of them pass."""
    if outcome.repaired:
        return "proven by the run above"
    changed = {step.target for step in outcome.steps}
    targets = outcome.last.record.targets
    helped = [each.name for each in targets if each.name in changed and each.status == "verified"]
    failing = [each.name for each in targets if each.status in ("failed", "broken")]
    unsaved = "which does not make all targets pass and is not saved"
    if not helped:
        return unsaved
    return f"{unsaved} (it repairs {', '.join(helped)}; still failing: {', '.join(failing)})"
