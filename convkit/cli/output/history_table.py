"""The past runs on the terminal."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.host.audit.past_runs.run_history import TOOLS_THAT_MATTER, RunEntry

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

# From this width on, the tools of each run are shown, too.
_WIDE = 110

STYLES = {
    "verified": "green",
    "failed": "bold red",
    "broken": "bold red",
    "waived": "yellow",
    "unproven": "yellow",
    "skipped": "yellow",
    "damaged": "bold red",
}


def history(
    entries: Sequence[RunEntry], root: Path, *, filtered: bool, most: int | None = None
) -> "RenderableType":
    """Return a table of runs, newest first, and what could not be read. `most` limits the rows:
    laying out a thousand takes longer than finding them.
    """
    from rich.console import Group
    from rich.text import Text

    if not entries:
        found = (
            "no matching run"
            if filtered
            else "no finished run yet (another folder: --home or CONVKIT_HOME)"
        )
        return Encodable(Text(f"{root}: {found}"))
    shown = entries if most is None else entries[:most]
    remarks = [Text(f"{entry.run}: {remark}") for entry in shown for remark in entry.remarks]
    text = f"{len(entries)} run{'' if len(entries) == 1 else 's'} in {root}"
    if len(shown) < len(entries):
        text += f"; the newest {len(shown)} are shown (--all shows all)"
    count = Text(text, style="dim")
    return Encodable(Group(_Runs(shown), Text(), *remarks, count))


@dataclasses.dataclass(frozen=True)
class _Runs:
    """The runs as a table: a line or two each. An id begins with the run's day and time (UTC)."""

    entries: Sequence[RunEntry]

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        del console
        from rich.table import Table
        from rich.text import Text

        columns: dict[str, Callable[[RunEntry], Text]] = {
            "run (UTC)": lambda entry: Text(entry.run),
            "recipe": lambda entry: Text(entry.recipe),
            "targets": _targets,
        }
        if options.max_width >= _WIDE:
            columns["tools"] = _tools
        if any(entry.accepted or entry.reproduced for entry in self.entries):
            columns["since"] = _since
        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in columns:
            ratio = {"targets": 3, "tools": 4}.get(heading)
            whole = heading == "run (UTC)"
            table.add_column(heading, no_wrap=whole, overflow="fold", ratio=ratio)
        for entry in self.entries:
            table.add_row(*(text(entry) for text in columns.values()))
        yield table


def _targets(entry: RunEntry) -> "Text":
    """Return the targets by status, in the order in which those first occur."""
    from rich.text import Text

    if entry.problem is not None:
        return Text.assemble(("damaged: ", STYLES["damaged"]), entry.problem)
    by_status: dict[str, list[str]] = {}
    for name, status in entry.targets.items():
        by_status.setdefault(status, []).append(name)
    texts = [
        Text.assemble(f"{', '.join(names)} ", (status, STYLES[status]))
        for status, names in by_status.items()
    ]
    return Text("; ").join(texts) if texts else Text(entry.status)


def _tools(entry: RunEntry) -> "Text":
    from rich.text import Text

    used = [
        f"{name} {', '.join(entry.tools[name])}"
        for name in TOOLS_THAT_MATTER
        if name in entry.tools
    ]
    return Text(", ".join(used))


def _since(entry: RunEntry) -> "Text":
    from rich.text import Text

    said = [
        *(["accepted"] if entry.accepted else []),
        *([f"reproduced: {entry.reproduced}"] if entry.reproduced else []),
    ]
    return Text(", ".join(said))
