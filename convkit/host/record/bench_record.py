"""A benchmark's record (docs/bench.md): what was measured, and how steady the machine was.

It belongs to a run, but is kept beside the run's folder: timings depend on the machine's load, so
no stage's key and no verdict on the conversion may rest on them.

<home>/runs/<recipe>/<id>.bench/<time>-<random>.json   one per benchmark
"""

import dataclasses
from pathlib import Path
from typing import Literal

from convkit.host.record.timestamped_records import write_stamped
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import CodecError, Json, decode, parse_json
from convkit.protocol.messages import Profile

FORMAT = 1
ORIGINAL = "original"

# met, missed: beyond the noise · undecided: the noise is larger than the margin · no-figure: the
# target, or the original, could not be measured.
GoalStatus = Literal["met", "missed", "undecided", "no-figure"]


@dataclasses.dataclass(frozen=True)
class Interval:
    """A figure with its bootstrap confidence interval of 95 %."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class SizeFigures:
    """A model at one size of inputs. Latencies are in seconds per call.

    A percentile is None if there were too few calls for it. `throughput` is in rows of the first
    input per second, at the median latency. `ratios` are a target's percentiles over the original's
    in the same rounds, by name (p50). `error`: the model does not run at this size.
    """

    size: str
    sizes: dict[str, int]
    calls: int = 0
    p50: Interval | None = None
    p90: Interval | None = None
    p99: Interval | None = None
    throughput: float | None = None
    ratios: dict[str, Interval] = dataclasses.field(default_factory=dict)
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class ModelFigures:
    """The original or a target; with parts, also each part's original (`original/<part>`) and share
    of a target (`<target>/<part>`). `absent` says why it was not measured.

    `size_bytes` is the size on disk; of a torch model, that of its weights. Memory is the peak of
    the process, with the runtime's libraries. `largest_error` is the largest absolute difference
    from the original in the run's verification.
    """

    name: str
    runtime: str
    device: str
    precision: str
    size_bytes: int | None = None
    absent: str | None = None
    load_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_memory_bytes: int | None = None
    sizes: tuple[SizeFigures, ...] = ()
    profile: Profile | None = None
    unprofiled: str = ""
    largest_error: float | None = None

    def at(self, size: str) -> SizeFigures | None:
        """Return the figures at a size, if the model ran there."""
        return next((each for each in self.sizes if each.size == size and not each.error), None)


@dataclasses.dataclass(frozen=True)
class GoalVerdict:
    """A goal of a target, at one size for latencies. `found` is the ratio to the original."""

    target: str
    figure: str
    limit: float
    status: GoalStatus
    found: Interval | None = None
    size: str | None = None


@dataclasses.dataclass(frozen=True)
class BenchRecord:
    """One benchmark session. `noise` is how much the original's median moved between rounds, by
    size, as a share of it. `waiting` is the share of the time in which threads waited for a
    processor, by size; empty in older records.

    `seconds` is the time of measurement per size; None in older records. `processes` is the number
    of processes that each model had, one after another. `summary` names the fastest, the smallest
    and the most accurate target. `exit_code` is 1 if a goal was missed.
    """

    format: int
    run: str
    recipe: str
    started: float
    ended: float
    host: dict[str, Json]
    threads: int
    rounds: dict[str, int]
    noise: dict[str, float]
    models: tuple[ModelFigures, ...]
    goals: tuple[GoalVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    summary: tuple[str, ...] = ()
    exit_code: int = 0
    seconds: float | None = None
    waiting: dict[str, float] = dataclasses.field(default_factory=dict)
    processes: int = 1

    @property
    def original(self) -> ModelFigures:
        """The original's figures."""
        return next(each for each in self.models if each.name == ORIGINAL)

    @property
    def targets(self) -> tuple[ModelFigures, ...]:
        """The targets' figures, in the recipe's order."""
        return tuple(each for each in self.models if each.name.partition("/")[0] != ORIGINAL)


def write_bench(folder: Path, record: BenchRecord) -> Path:
    """Store a benchmark beside its run's folder; return the file. Raises StoreError."""
    return write_stamped(bench_folder(folder), record)


def bench_folder(folder: Path) -> Path:
    """Return the folder of a run's benchmarks: inside the run's own, the provenance covers every
    file.
    """
    return folder.with_name(f"{folder.name}.bench")


def latest_bench(folder: Path) -> BenchRecord | None:
    """Return a run's last benchmark; None if it has none. Raises ConvkitError if it is damaged."""
    files = sorted(bench_folder(folder).glob("*.json"))
    return read_bench(files[-1]) if files else None


def read_bench(path: Path) -> BenchRecord:
    """Return a benchmark's record; raises ConvkitError if it cannot be read."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        if value.get("format") != FORMAT:
            raise ConvkitError(
                f"{path}: has format {value.get('format')!r}; this convkit reads {FORMAT}"
            )
        return decode(BenchRecord, value)
    except (OSError, ValueError, AttributeError, CodecError) as error:
        raise ConvkitError(f"{path}: no readable benchmark: {error}") from error
