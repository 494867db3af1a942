"""How two runs differ, on the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import line, section
from convkit.host.audit.differences.run_difference import (
    FindingEntry,
    RunChange,
    RunDifference,
    RunFigure,
    RunRelation,
)
from convkit.protocol.metrics.metric_registry import METRICS
from convkit.protocol.metrics.number_text import distinct_texts

if TYPE_CHECKING:
    from rich.console import RenderableType

# How many lines of one kind are shown; --json has all of them.
_MOST = 30


_WORDS: dict[RunRelation, tuple[str, str]] = {
    "SAME": ("no difference that matters", "bold green"),
    "WITHIN_ROUNDING": (
        "equal within rounding, recorded on another processor (WITHIN_ROUNDING)",
        "bold green",
    ),
    "DIFFERENT": ("they differ", "bold red"),
}


def difference_text(difference: RunDifference) -> "RenderableType":
    """Format a comparison for the terminal: differences first, then informational items."""
    from rich.console import Group

    word = _WORDS[difference.relation]
    parts = [line(f"{difference.a} -> {difference.b}: ", word)]
    for title, lines in _sections(difference):
        found = list(lines)
        more = [f"and {len(found) - _MOST} more (--json)"] if len(found) > _MOST else []
        parts += section(title, [*found[:_MOST], *more])
    return Encodable(Group(*parts))


def _sections(difference: RunDifference) -> Iterator[tuple[str, Iterator[str]]]:
    yield "Verdicts", changes_text(difference.verdicts)
    yield "Recipe", changes_text(difference.recipe)
    yield "Built from", changes_text(difference.sources)
    yield "Contract", changes_text(difference.contract)
    yield "Tools", _tools(difference)
    yield "Locks", changes_text(difference.locks)
    yield "Built files", _built(difference)
    yield "Metrics", figures_text(difference.metrics)
    yield "Equal within rounding, on another processor", figures_text(difference.rounding)
    yield "Not comparable, of other integer kernels", figures_text(difference.incomparable)
    yield "New findings", findings_text(difference.new_findings)
    yield "Findings that disappeared", findings_text(difference.gone_findings)
    yield "Same findings", findings_text(difference.same_findings)
    yield "Machine and toolchain (for information)", changes_text(difference.surroundings)
    yield "Time per case (for information)", figures_text(difference.latencies)


def changes_text(changes: Sequence[RunChange]) -> Iterator[str]:
    """Yield a line for each value that differs."""
    for change in changes:
        yield f"{change.path}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: str | None) -> str:
    return "(absent)" if value is None else value


def _tools(difference: RunDifference) -> Iterator[str]:
    for tool in difference.tools:
        yield (
            f"{tool.package} {_value(tool.before)} -> {_value(tool.after)} in"
            f" {', '.join(tool.stages)}"
        )


def _built(difference: RunDifference) -> Iterator[str]:
    for file in difference.built:
        yield f"{file.path}: {_digest(file.before)} -> {_digest(file.after)}"
        yield from (f"  {each}" for each in file.description)


def _digest(value: str | None) -> str:
    return "(absent)" if value is None else value[:12]


def figures_text(figures: Sequence[RunFigure]) -> Iterator[str]:
    """Yield a line for each figure that differs: of which target, case and output."""
    for figure in figures:
        name = ", ".join(part for part in (figure.target, figure.case, figure.output) if part)
        metric = METRICS.get(figure.metric)  # None: seconds
        near_one = metric is not None and metric.best == 1.0  # a ratio is meaningless near one
        ratio = "" if figure.ratio is None or near_one else f" (x {figure.ratio:.3g})"
        yield f"{name}: {figure.metric} {_numbers(figure.before, figure.after)}{ratio}"


def _numbers(before: float | None, after: float | None) -> str:
    present = iter(
        distinct_texts(*(each for each in (before, after) if each is not None), digits=4)
    )
    return " -> ".join("(absent)" if each is None else next(present) for each in (before, after))


def findings_text(entries: Sequence[FindingEntry]) -> Iterator[str]:
    """Yield a line for each finding."""
    for entry in entries:
        yield f"{entry.severity} {entry.code} in {', '.join(entry.where)}: {entry.message}"
