"""The past runs on the terminal."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.host.audit.past_runs.run_history import TOOLS_THAT_MATTER, RunEntry
from convkit.host.record.display_text import age_text, seconds_text
from convkit.host.record.run_record import TargetStatus

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

# From this width on, every target of each run and its tools are shown.
_WIDE = 130
# Below this width, targets that are not verified are below their run if they do not fit beside it.
_NARROW = 100
# Columns whose entries are never broken.
_WHOLE = ("run (UTC)", "verdict", "age", "took")

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
    see = Text("To see one: convkit show RUN, or convkit report RUN for its page")
    return Encodable(Group(_Runs(shown), Text(), *remarks, count, see))


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
            "verdict": lambda entry: Text(entry.status, STYLES[entry.status]),
            "age": lambda entry: Text(_age(entry)),
            "took": lambda entry: Text(
                seconds_text(entry.seconds) if entry.seconds is not None else ""
            ),
        }
        if options.max_width >= _WIDE:
            columns |= {"targets": _targets, "tools": _tools}
        else:
            columns["not verified"] = _not_verified
        if any(entry.accepted or entry.reproduced for entry in self.entries):
            columns["since"] = _since
        if options.max_width < _NARROW and _width(columns, self.entries) > options.max_width:
            below = columns.pop("not verified")
            yield from _lines(columns, [(entry, below(entry)) for entry in self.entries])
            return
        table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in columns:
            ratio = {"targets": 3, "not verified": 3, "tools": 4}.get(heading)
            table.add_column(heading, no_wrap=heading in _WHOLE, overflow="fold", ratio=ratio)
        for entry in self.entries:
            table.add_row(*(text(entry) for text in columns.values()))
        yield table


def _width(
    columns: "Mapping[str, Callable[[RunEntry], Text]]", entries: "Sequence[RunEntry]"
) -> int:
    """Return how wide a table is of which no entry breaks."""
    widths = (
        max(len(heading), *(text(entry).cell_len for entry in entries))
        for heading, text in columns.items()
    )
    return sum(widths) + 2 * (len(columns) - 1)


def _lines(
    columns: "Mapping[str, Callable[[RunEntry], Text]]", rows: "Sequence[tuple[RunEntry, Text]]"
) -> "Iterator[RenderableType]":
    """Yield the runs in columns, each with a text below it that may wrap."""
    from rich.padding import Padding
    from rich.text import Text

    table = [[text(entry) for text in columns.values()] for entry, _ in rows]
    heads = [Text(heading, "bold") for heading in columns]
    widths = [max(cell.cell_len for cell in cells) for cells in zip(heads, *table, strict=True)]
    extra = [None, *(below for _, below in rows)]
    for cells, below in zip((heads, *table), extra, strict=True):
        for cell, width in zip(cells, widths, strict=True):
            cell.pad_right(width - cell.cell_len)
        line = Text("  ").join(cells)
        line.rstrip()
        yield line
        if below:
            yield Padding(below, (0, 0, 0, 4))


def _age(entry: RunEntry) -> str:
    return age_text(time.time() - entry.started) if entry.started is not None else ""


def _targets(entry: RunEntry) -> "Text":
    """Return the targets by status, in the order in which those first occur."""
    return _by_status(entry, entry.targets)


def _not_verified(entry: RunEntry) -> "Text":
    """Return the targets that are not verified; with their status, if one's is not the run's."""
    from rich.text import Text

    targets = {name: status for name, status in entry.targets.items() if status != "verified"}
    if entry.problem is None and set(targets.values()) <= {entry.status}:
        return Text(", ".join(targets))
    return _by_status(entry, targets)


def _by_status(entry: RunEntry, targets: Mapping[str, TargetStatus]) -> "Text":
    from rich.text import Text

    if entry.problem is not None:
        return Text(entry.problem)
    by_status: dict[str, list[str]] = {}
    for name, status in targets.items():
        by_status.setdefault(status, []).append(name)
    texts = [
        Text.assemble((f"{status}: ", STYLES[status]), ", ".join(names))
        for status, names in by_status.items()
    ]
    return Text("; ").join(texts)


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
