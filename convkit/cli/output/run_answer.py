"""How a run's text ends: which targets are not green, why, and what to type next.

A terminal shows the end of a long text, so the answer comes last.
"""

import dataclasses
import re
import textwrap
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import line, uncut
from convkit.host.record.display_text import first_line
from convkit.host.record.next_commands import next_commands
from convkit.host.record.run_record import RunRecord, TargetReport, TargetStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

# In the order of their weight; all others are green.
_STYLES: dict[TargetStatus, str] = {
    "broken": "bold red",
    "failed": "bold red",
    "unproven": "bold yellow",
    "skipped": "bold yellow",
}


# Where the clauses of a message end: what comes before says something by itself.
_CLAUSES = re.compile(r"(?:: |; |\. | \(|, in case )")

# Text is not broken into narrower lines.
_LEAST = 20

# Longer commands have what they do below them, so that neither wraps on 80 columns.
_COMMAND_WIDTH = 42


def answer(record: RunRecord) -> "list[RenderableType]":
    """Return the last lines of a run's text; none if every target is green.

    Each cause is a line or two, cut where a clause ends: its finding is above in full.
    """
    lines: list[RenderableType] = []
    for status, style in _STYLES.items():
        targets = [target for target in record.targets if target.status == status]
        if not targets:
            continue
        named = ", ".join(f"{target.name}{_code(target)}" for target in targets)
        lines.append(line((f"{status}: ", style), named))
        for target in targets if status != "skipped" else ():
            lines += [_cause(target), *_by_hand(target)]
    if not lines:
        return []
    commands = next_commands(record)
    width = max((len(command) for command, _ in commands), default=0)
    if commands:
        lines.append(line("Next:", style="bold"))
    for command, what in commands:
        if width <= _COMMAND_WIDTH:
            lines.append(line((f"{command:<{width}}", "cyan"), f"  {what}", indent=2))
        else:
            lines += [uncut((command, "cyan"), indent=2), line(what, indent=6)]
    return [line(), *(Encodable(each) for each in lines)]


def _code(target: TargetReport) -> str:
    return "" if target.leading is None else f" ({target.leading.code})"


def _cause(target: TargetReport) -> "RenderableType":
    message = target.headline if target.leading is None else target.leading.message
    return _Cause(f"  {target.name}: ", first_line(message))


def _by_hand(target: TargetReport) -> "Iterator[RenderableType]":
    """Yield what to do where no change of the recipe is there to be tried."""
    remedy = None if target.leading is None else target.leading.remedy
    if remedy is not None and not remedy.change:
        yield _Cause("    to do: ", first_line(remedy.text), most=1)


@dataclasses.dataclass(frozen=True)
class _Cause:
    """A cause on one line, up to its last clause that fits; on `most` lines if none does."""

    name: str
    message: str
    most: int = 2

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        room = options.max_width - len(self.name)
        text = self.message
        ends = [found.start() for found in _CLAUSES.finditer(text)]
        if len(text) > room and (fitting := [end for end in ends if room // 3 <= end <= room]):
            text = text[: fitting[-1]]
        lines = textwrap.wrap(text, max(room, _LEAST), max_lines=self.most, placeholder=" ...")
        yield Text(f"{self.name}{lines[0] if lines else ''}", no_wrap=True, overflow="ellipsis")
        for more in lines[1:]:
            yield Text(f"    {more}", no_wrap=True, overflow="ellipsis")
