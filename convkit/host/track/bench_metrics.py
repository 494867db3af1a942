"""A benchmark's figures as MLflow metrics. Pure."""

import math
from collections.abc import Iterator

from convkit.host.record.bench_record import BenchRecord, ModelFigures
from convkit.host.track.run_entries import MetricPoint


def bench_points(bench: BenchRecord) -> list[MetricPoint]:
    """Return the finite figures of every model that was measured, and the noise.

    `<model>/bench/<size>/p50_seconds`, `.../p50_ratio` and so on; memory, load and first call once.
    """
    points = [MetricPoint(f"bench/{size}/noise", share) for size, share in bench.noise.items()]
    points += [MetricPoint("bench/threads", bench.threads)]
    for model in bench.models:
        points += _model_points(model)
    return [point for point in points if math.isfinite(point.value)]


def _model_points(model: ModelFigures) -> Iterator[MetricPoint]:
    once = {
        "load_seconds": model.load_seconds,
        "first_call_seconds": model.first_call_seconds,
        "peak_memory_bytes": model.peak_memory_bytes,
    }
    for name, value in once.items():
        if value is not None:
            yield MetricPoint(f"{model.name}/bench/{name}", value)
    for size in model.sizes:
        place = f"{model.name}/bench/{size.size}"
        for name in ("p50", "p90", "p99"):
            if (found := getattr(size, name)) is not None:
                yield MetricPoint(f"{place}/{name}_seconds", found.value)
            if name in size.ratios:
                yield MetricPoint(f"{place}/{name}_ratio", size.ratios[name].value)
        if size.throughput is not None:
            yield MetricPoint(f"{place}/rows_per_second", size.throughput)
