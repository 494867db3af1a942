"""A benchmark's figures as MLflow metrics. Pure."""

import math
from collections.abc import Iterator

from convkit.record.bench import BenchRecord, ModelFigures
from convkit.track.entries import Point


def bench_points(bench: BenchRecord) -> list[Point]:
    """Return the finite figures of every model that was measured, and the noise.

    `<model>/bench/<size>/p50_seconds`, `.../p50_ratio` and so on; memory, load and first call once.
    """
    points = [Point(f"bench/{size}/noise", share) for size, share in bench.noise.items()]
    points += [Point("bench/threads", bench.threads)]
    for model in bench.models:
        points += _model_points(model)
    return [point for point in points if math.isfinite(point.value)]


def _model_points(model: ModelFigures) -> Iterator[Point]:
    once = {
        "load_seconds": model.load_seconds,
        "first_call_seconds": model.first_call_seconds,
        "peak_memory_bytes": model.peak_memory_bytes,
    }
    for name, value in once.items():
        if value is not None:
            yield Point(f"{model.name}/bench/{name}", value)
    for size in model.sizes:
        place = f"{model.name}/bench/{size.size}"
        for name in ("p50", "p90", "p99"):
            if (found := getattr(size, name)) is not None:
                yield Point(f"{place}/{name}_seconds", found.value)
            if name in size.ratios:
                yield Point(f"{place}/{name}_ratio", size.ratios[name].value)
        if size.throughput is not None:
            yield Point(f"{place}/rows_per_second", size.throughput)
