"""What `convkit run --repair` says beside the run itself."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from convkit.cli.plain import Encodable
from convkit.codec import Json
from convkit.record.model import RepairStep

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from convkit.execute.repair import RepairOutcome

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def change_text(change: Mapping[str, Json]) -> str:
    """Return a change to the recipe on one line."""
    return "; ".join(
        f"{path}: {json.dumps(value, ensure_ascii=False)}" for path, value in change.items()
    )


def announce(steps: tuple[RepairStep, ...]) -> None:
    """Say on standard error what a round is about to change."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    for step in steps:
        what = f"{step.code} of {step.target}: {change_text(step.change)}"
        _print(console, Text.assemble((f"repair, round {step.round}: ", "bold"), what))


def print_repair(
    outcome: "RepairOutcome", *, command: str, written: bool, console: "Console | None" = None
) -> None:
    """Print how the repair ended, the change to the recipe, and what to do with it.

    `written`: the recipe's file holds the change; `command`: what would write it. Lines are not
    broken: a diff is for copying.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    word, style = (
        ("Not repaired", "bold red")
        if outcome.needed and not outcome.repaired
        else ("Repair", "bold")
    )
    console.print()
    _print(console, Text.assemble((f"{word}: ", style), outcome.ending))
    if not outcome.repaired:
        for each in outcome.withheld:
            shown = change_text({each.path: each.value})
            _print(
                console,
                Text.assemble(
                    f"  {each.code} of {each.target} offers ", (shown, "cyan"), f"; {each.reason}"
                ),
            )
    if outcome.diff:
        proven = (
            "proven by the run above"
            if outcome.repaired
            else "as far as it went, which is not proven"
        )
        _print(console, Text(f"The change to the recipe, {proven}:"))
        for line in outcome.diff.splitlines():
            _print(console, Text(line, style=_DIFF_STYLES.get(line[:1], "")))
    if outcome.repaired:
        _print(
            console,
            Text(
                f"Written to {outcome.loaded.path}"
                if written
                else f"Write it with --write: {command}"
            ),
        )


def _print(console: "Console", text: "Text") -> None:
    console.print(Encodable(text), soft_wrap=True)
