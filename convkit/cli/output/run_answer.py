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
from convkit.host.record.run_summary import causes, evidence_of

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
_CLAUSES = re.compile(r"(?:: |; |\. | \(|, in case |, worst at |, or )")

# Text is not broken into narrower lines.
_LEAST = 20

# Of so many targets, each cause has two lines; of more, one.
_FEW = 4

# Longer commands have what they do below them, so that neither wraps on 80 columns.
_COMMAND_WIDTH = 42


def answer(record: RunRecord) -> "list[RenderableType]":
    """Return the last lines of a run's text: which targets are green if all are.

    Each cause is a line or two, cut where a clause ends: its finding is above in full.
    """
    lines: list[RenderableType] = []
    for status, style in _STYLES.items():
        targets = [target for target in record.targets if target.status == status]
        if not targets:
            continue
        named = ", ".join(f"{target.name}{_code(target)}" for target in targets)
        lines.append(line((f"{status}: ", style), named))
        most = 2 if len(targets) <= _FEW else 1
        for target in targets if status != "skipped" else ():
            # A single finding with its remedy is right above.
            by_hand = _by_hand(target) if len(causes(record)) > 1 else ()
            lines += [_cause(target, most), *by_hand]
    if not lines:
        return _green(record)
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


def _green(record: RunRecord) -> "list[RenderableType]":
    named = ", ".join(f"{target.name}{_simulated(target)}" for target in record.targets)
    warnings = [each.finding.code for each in causes(record) if each.finding.severity == "warning"]
    codes = ", ".join(dict.fromkeys(warnings))
    about = f"; see above: warning {codes}" if codes else ""
    return [line(), Encodable(line(("verified: ", "bold green"), f"{named}{about}"))]


def _simulated(target: TargetReport) -> str:
    return " (simulated)" if "simulated" in evidence_of(target) else ""


def is_green(record: RunRecord) -> bool:
    """Say whether every target is verified, or its failure is waived."""
    return not any(target.status in _STYLES for target in record.targets)


def _code(target: TargetReport) -> str:
    return "" if target.leading is None else f" ({target.leading.code})"


def _cause(target: TargetReport, most: int) -> "RenderableType":
    if (leading := target.leading) is None:
        return _Cause(f"  {target.name}: ", first_line(target.headline), most=most)
    source, message = leading.place.source, first_line(leading.message)
    where = f", at {source}" if source and source not in message else ""
    return _Cause(f"  {target.name}: ", message, where, most)


def _by_hand(target: TargetReport) -> "Iterator[RenderableType]":
    """Yield what to do where no change of the recipe is there to be tried."""
    remedy = None if target.leading is None else target.leading.remedy
    if remedy is not None and not remedy.change:
        yield _Cause("    to do: ", first_line(remedy.text))


@dataclasses.dataclass(frozen=True)
class _Cause:
    """A cause on at most `most` lines, up to its last clause that fits there, and its place."""

    name: str
    message: str
    where: str = ""
    most: int = 2

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.text import Text

        width = max(options.max_width, _LEAST)
        ends = [found.start() for found in _CLAUSES.finditer(self.message)]
        least = (width - len(self.name)) // 3
        texts = [self.message, *(self.message[:end] for end in reversed(ends) if end >= least)]
        laid_out = [self._lines(text + self.where, width) for text in texts]
        lines = next((each for each in laid_out if len(each) <= self.most), laid_out[0])
        if len(lines) > self.most:
            lines = [*lines[: self.most - 1], f"{lines[self.most - 1]} ..."]
        for each in lines:
            yield Text(each, no_wrap=True, overflow="ellipsis")

    def _lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(
            f"{self.name}{text}",
            width,
            subsequent_indent="    " + " " * (len(self.name) - len(self.name.lstrip()) - 2),
            break_on_hyphens=False,
        )
