"""A benchmark on the terminal."""

import dataclasses
from typing import TYPE_CHECKING

from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import SEVERITY_STYLES, figure_table, line
from convkit.host.record.bench_record import BenchRecord, ModelFigures, SizeFigures
from convkit.host.record.display_text import count_text, first_line, ratio_text, sizes_text
from convkit.host.record.latency_statistics import waiting_text
from convkit.host.report.bench_section import footprint_row, how_text, latency_text, spread_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table


def bench_summary(record: BenchRecord) -> "RenderableType":
    """Return a benchmark's tables, what its summary says, and its findings."""
    return Encodable(_Summary(record))


@dataclasses.dataclass(frozen=True)
class _Summary:
    record: BenchRecord

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        del console, options
        record = self.record
        for figures in record.original.sizes:  # a file has `rounds` sorted by name
            size, sizes = figures.size, figures.sizes
            yield line(f"{size} ({sizes_text(sizes)}), {how_text(record, size)}", style="bold")
            if crowded := waiting_text(record.waiting.get(size, 0.0)):
                yield line(crowded, style="yellow")
            yield _latencies(record, size)
            yield line()
        for figures in record.original.sizes:
            if figures.error is not None:
                yield line(f"{figures.size}: the original fails: {first_line(figures.error)}")
        yield line("once per model", style="bold")
        yield _footprints(record)
        for model in record.targets:
            if model.absent:
                yield line(f"{model.name}: no figure: {first_line(model.absent)}", style="yellow")
        for text in record.summary:
            yield line(text, style="bold")
        for finding in record.findings:
            code = f"{finding.severity} {finding.code} ", SEVERITY_STYLES[finding.severity]
            yield line(code, finding.message)
            for place in (finding.evidence.get("most_expensive") or [])[:3]:
                yield line(place, style="dim", indent=4)
            if finding.remedy is not None:
                yield line(f"{finding.remedy.label}: {finding.remedy.text}", style="cyan", indent=4)


def _latencies(record: BenchRecord, size: str) -> "Table":
    table = figure_table(("model", "p50", "p90", "p99", "rows/s", "vs original"))
    for model in record.models:
        found = next((each for each in model.sizes if each.size == size), None)
        if found is None:
            continue
        if found.error is not None:
            table.add_row(model.name, first_line(found.error))
            continue
        table.add_row(*_latency_row(model, found))
    return table


def _latency_row(model: ModelFigures, found: SizeFigures) -> tuple[str, ...]:
    ratio = found.ratios.get("p50")
    shown = "" if ratio is None else f"{ratio_text(ratio.value)}x ({spread_text(ratio)})"
    throughput = "-" if found.throughput is None else count_text(found.throughput)
    return (
        model.name,
        *(latency_text(each) for each in (found.p50, found.p90, found.p99)),
        throughput,
        shown,
    )


def _footprints(record: BenchRecord) -> "Table":
    table = figure_table(("model", "size", "memory", "load", "first call"))
    for model in record.models:
        if model.load_seconds is not None or model.size_bytes is not None:
            table.add_row(*footprint_row(model))
    return table
