"""A search on the terminal."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import figure_table, line
from convkit.host.recipe.editing.change_text import flow_text
from convkit.host.record.display_text import first_line
from convkit.host.record.latency_statistics import noise_text, waiting_text
from convkit.host.record.tune_record import Candidate, CandidateStatus, TuneRecord
from convkit.host.report.tune_page import columns, figure_cells

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table


def tune_summary(record: TuneRecord) -> "RenderableType":
    """Return the frontier, what is behind it and why, and the choice."""
    return Encodable(_Summary(record))


@dataclasses.dataclass(frozen=True)
class _Summary:
    record: TuneRecord

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        del console, options
        record = self.record
        threads = f"{record.threads} thread{'s' if record.threads != 1 else ''}"
        steady = f", {noise_text(record.noise)}" if record.noise is not None else ""
        yield line(f"\nfrontier: latency at {record.size}, {threads}{steady}", style="bold")
        if crowded := waiting_text(record.waiting or 0.0):
            yield line(crowded, style="yellow")
        yield self._table(record.with_status("frontier"), with_original=True)
        behind: dict[CandidateStatus, str] = {
            "dominated": "another candidate is at least as good in every respect",
            "missed": "a goal is missed",
        }
        for status, title in behind.items():
            if found := record.with_status(status):
                yield line(title, style="bold")
                yield self._table(found)
                yield from (
                    line(f"  {each.name}: {each.why}", style="dim")
                    for each in found
                    if each.status == "missed"
                )
        said = [each for each in record.candidates if each.judged_by]
        for why, names in _by(said, lambda each: each.judged_by).items():
            yield line(f"judged by their type: {', '.join(names)}: {why}", style="yellow")
        yield from self._without_result()
        for why, names in _by(record.with_status("left-out"), _why).items():
            yield line(f"not tried: {', '.join(names)}: {first_line(why)}", style="dim")
        yield line()
        yield from self._choice()

    def _without_result(self) -> "RenderResult":
        """Yield a line per reason: a report and `convkit show RUN` have the sentences in full."""
        from rich.text import Text

        for status in ("failed", "broken", "unproven", "skipped"):
            style = "yellow" if status in ("unproven", "skipped") else "red"
            for why, names in _by(self.record.with_status(status), _why).items():
                text = f"{', '.join(names)}: {status}: {first_line(why)}"
                yield Text(text, style=style, no_wrap=True, overflow="ellipsis")

    def _choice(self) -> "RenderResult":
        best = self.record.choice
        if best is None:
            yield line("No candidate meets tolerance and goals.", style="bold red")
            return
        yield line(("best for ", "bold"), f"{self.record.prefer}: ", (best.name, "green"))
        yield line(f"  {target_text(best)}")
        if best.threads is not None:
            count = f"{best.threads} compute thread{'s' if best.threads > 1 else ''}"
            yield line(f"  Serve it with {count}: that was the fastest here.")
        if not best.own:
            yield line("  To add it to the recipe, run the same command with --write.")

    def _table(self, found: tuple[Candidate, ...], *, with_original: bool = False) -> "Table":
        table = figure_table(columns(self.record))
        if with_original:
            table.add_row("original", *figure_cells(self.record.original, self.record))
        for each in found:
            marks = " (in the recipe)" if each.own else ""
            marks += " (simulated)" if each.evidence == "simulated" else ""
            table.add_row(f"{each.name}{marks}", *figure_cells(each.figures, self.record))
        return table


def target_text(candidate: Candidate) -> str:
    """Return a candidate as a target on one line, as a recipe can have it."""
    return f"{candidate.name}: {flow_text(candidate.target)}"


def _why(candidate: Candidate) -> str:
    return candidate.why


def _by(candidates: Iterable[Candidate], text: Callable[[Candidate], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in candidates:
        found.setdefault(text(each), []).append(each.name)
    return found
