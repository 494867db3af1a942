"""A run's benchmark in its report: latencies against the original, by size. Pure."""

import dataclasses

from convkit.host.record.bench_record import BenchRecord, Interval, ModelFigures
from convkit.host.record.display_text import brief_time_text, bytes_text, ratio_text, sizes_text
from convkit.host.record.latency_statistics import noise_text, waiting_text
from convkit.host.report.svg_elements import SvgFigure
from convkit.host.report.svg_plots import Bar, bar_plot


@dataclasses.dataclass(frozen=True)
class BenchSizeView:
    """One size: its name with its axes, how it was measured, a warning if the machine was busy, a
    plot, and a row per model.
    """

    title: str
    how: str
    crowded: str
    plot: SvgFigure
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class BenchView:
    """A benchmark as the report shows it."""

    record: BenchRecord
    sizes: tuple[BenchSizeView, ...]
    footprints: tuple[tuple[str, ...], ...]
    absent: tuple[tuple[str, str], ...]


def bench_view(record: BenchRecord | None) -> BenchView | None:
    """Return what the report shows of a benchmark; None without one."""
    if record is None:
        return None
    return BenchView(
        record,
        # In the order of the benchmark: a file has `rounds` sorted by name.
        tuple(_size_view(record, each.size) for each in record.original.sizes),
        tuple(footprint_row(model) for model in record.models if model.load_seconds is not None),
        tuple((model.name, model.absent) for model in record.targets if model.absent is not None),
    )


def _size_view(record: BenchRecord, size: str) -> BenchSizeView:
    bars: list[Bar] = []
    rows: list[tuple[str, ...]] = []
    axes = ""
    for model in record.models:
        figures = next((each for each in model.sizes if each.size == size), None)
        if figures is None:
            continue
        axes = sizes_text(figures.sizes)
        if figures.error is not None or figures.p50 is None:
            rows.append((model.name, "", "", "", figures.error or "no figure"))
            continue
        ratio = figures.ratios.get("p50")
        against = "" if ratio is None else f"{ratio_text(ratio.value)} ({spread_text(ratio)})"
        shown = f"{latency_text(figures.p50)}, {against}" if against else latency_text(figures.p50)
        bars.append(Bar(model.name, figures.p50.value, shown))
        latencies = (figures.p50, figures.p90, figures.p99)
        rows.append((model.name, *map(latency_text, latencies), against))
    title = f"Median latency at {size}"
    crowded = waiting_text(record.waiting.get(size, 0.0)) or ""
    plot = bar_plot(bars, title)
    return BenchSizeView(f"{size} ({axes})", how_text(record, size), crowded, plot, tuple(rows))


def how_text(record: BenchRecord, size: str) -> str:
    """Return how a size was measured: '21 rounds in 3 processes, 2 threads, steady: 2 %'."""
    processes = f" in {record.processes} processes" if record.processes > 1 else ""
    noise = noise_text(record.noise[size])
    return f"{record.rounds[size]} rounds{processes}, {record.threads} threads, {noise}"


def latency_measure(record: BenchRecord | None, target: str) -> SvgFigure | None:
    """Return a target's median latency beside the original's at the first size, for its card; None
    if it was not measured.
    """
    models = record.targets if record is not None else ()
    sizes = next((model.sizes for model in models if model.name == target), ())
    ratio = sizes[0].ratios.get("p50") if sizes else None
    if ratio is None:
        return None
    text = f"{ratio_text(ratio.value)}x the original at {sizes[0].size}"
    return bar_plot([Bar("Latency", ratio.value, text)], "Median latency", full=1.0)


def spread_text(found: Interval) -> str:
    """Return an interval's ends as text: '0.48 to 0.53'."""
    return f"{ratio_text(found.low)} to {ratio_text(found.high)}"


def footprint_row(model: ModelFigures) -> tuple[str, ...]:
    """Return a model's name, size, peak memory, load time and first call, as text."""
    sizes = (model.size_bytes, model.peak_memory_bytes)
    times = (model.load_seconds, model.first_call_seconds)
    return (
        model.name,
        *("-" if each is None else bytes_text(each) for each in sizes),
        *("-" if each is None else brief_time_text(each) for each in times),
    )


def latency_text(found: Interval | None) -> str:
    """Return a latency; '-' if there were too few calls for it."""
    return "-" if found is None else brief_time_text(found.value)
