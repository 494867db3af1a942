"""The past runs on the terminal."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.audit.history import TOOLS_THAT_MATTER, RunEntry
from convkit.cli.plain import Encodable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

STYLES = {
    "verified": "green",
    "failed": "bold red",
    "broken": "bold red",
    "waived": "yellow",
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
    from rich.table import Table
    from rich.text import Text

    if not entries:
        found = (
            "no matching run"
            if filtered
            else "no finished run yet (another folder: --home or CONVKIT_HOME)"
        )
        return Encodable(Text(f"{root}: {found}"))
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("run", "date (UTC)", "recipe"):
        table.add_column(heading, no_wrap=heading == "run", overflow="fold")
    for heading in ("targets", "tools", "since"):
        table.add_column(heading, overflow="fold")
    shown = entries if most is None else entries[:most]
    for entry in shown:
        table.add_row(
            Text(entry.run),
            _date(entry.started),
            Text(entry.recipe),
            _targets(entry),
            _tools(entry),
            _since(entry),
        )
    remarks = [Text(f"{entry.run}: {remark}") for entry in shown for remark in entry.remarks]
    text = f"{len(entries)} run{'' if len(entries) == 1 else 's'} in {root}"
    if len(shown) < len(entries):
        text += f"; the newest {len(shown)} are shown (--all shows all)"
    count = Text(text, style="dim")
    return Encodable(Group(table, Text(), *remarks, count))


def _date(started: float | None) -> "Text":
    from rich.text import Text

    return Text(
        "unknown" if started is None else time.strftime("%Y-%m-%d %H:%M", time.gmtime(started))
    )


def _targets(entry: RunEntry) -> "Text":
    from rich.text import Text

    if entry.problem is not None:
        return Text.assemble(("damaged: ", STYLES["damaged"]), entry.problem)
    lines: list[Text] = [
        Text.assemble(f"{name} ", (status, STYLES[status]))
        for name, status in entry.targets.items()
    ]
    return Text("\n").join(lines) if lines else Text(entry.status)


def _tools(entry: RunEntry) -> "Text":
    from rich.text import Text

    used = [
        f"{name} {', '.join(entry.tools[name])}"
        for name in TOOLS_THAT_MATTER
        if name in entry.tools
    ]
    return Text("\n".join(used))


def _since(entry: RunEntry) -> "Text":
    from rich.text import Text

    said = [
        *(["accepted"] if entry.accepted else []),
        *([f"reproduced: {entry.reproduced}"] if entry.reproduced else []),
    ]
    return Text("\n".join(said))
