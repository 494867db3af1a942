"""Splits an entry's contents into batches that MLflow accepts: one call for many values is ten
times faster than many calls.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from convkit.host.track.mlflow_limits import METRICS_PER_BATCH, PARAMS_PER_BATCH, TAGS_PER_BATCH
from convkit.host.track.run_entries import MetricPoint

# MLflow accepts requests of a million bytes and a thousand values; this leaves room for names and
# quoting.
_VALUES = 900
_CHARACTERS = 150_000
_POINT_CHARACTERS = 120  # a point's value, time, step and model id


@dataclasses.dataclass
class MlflowBatch:
    """The contents of one call."""

    params: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    tags: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    points: list[MetricPoint] = dataclasses.field(default_factory=list)
    characters: int = 0

    def has_room(self, length: int) -> bool:
        """Return whether one more value of `length` characters fits."""
        values = len(self.params) + len(self.tags) + len(self.points)
        return (
            len(self.params) < PARAMS_PER_BATCH
            and len(self.tags) < TAGS_PER_BATCH
            and len(self.points) < METRICS_PER_BATCH
            and values < _VALUES
            and self.characters + length <= _CHARACTERS
        )


def batches(
    params: Mapping[str, str], tags: Mapping[str, str], points: Sequence[MetricPoint]
) -> Iterator[MlflowBatch]:
    """Yield batches that contain everything once, in order."""
    batch = MlflowBatch()
    for kind, pairs in (("params", params), ("tags", tags)):
        for name, value in pairs.items():
            if not batch.has_room(len(name) + len(value)):
                yield batch
                batch = MlflowBatch()
            getattr(batch, kind).append((name, value))
            batch.characters += len(name) + len(value)
    for point in points:
        if not batch.has_room(len(point.name) + _POINT_CHARACTERS):
            yield batch
            batch = MlflowBatch()
        batch.points.append(point)
        batch.characters += len(point.name) + _POINT_CHARACTERS
    if batch.characters:
        yield batch
