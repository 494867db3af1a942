"""`convkit bench`: times the original and every target that can run here, side by side."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from convkit.host.bench.bench_requests import original_envelope, sizes_of, target_envelope
from convkit.host.bench.bench_rounds import measure, processes_for, processes_left
from convkit.host.bench.bench_session import (
    BenchSession,
    NotMeasuredError,
    TimedModel,
    bench_session,
)
from convkit.host.bench.benchmark_summary import Measured, MeasuredSession, bench_record, with_part
from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import ResolvedFacts, describe_host, gather
from convkit.host.facts.processor_features import usable_cores
from convkit.host.facts.version_sources import Resolver
from convkit.host.home import Home
from convkit.host.plan.stages import Stage, export_id, join_id, plan_stages, reference_id, verify_id
from convkit.host.processes.progress_events import Listener
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.keys.bench import Bench
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.bench_record import ORIGINAL, BenchRecord, write_bench
from convkit.host.record.latency_statistics import Timings, merged
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.run.run_folder import read_record
from convkit.host.store.external_weight_files import external_files
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.protocol.errors import ConvkitError, StoreError
from convkit.protocol.messages import BenchResult, BenchSize, Hello
from convkit.protocol.runtimes.runtime_registry import runtimes

_STAGE = "bench"
_GRAPH_FILE = "model.onnx"


@dataclasses.dataclass(frozen=True)
class BenchOutcome:
    """A benchmark's record, and the file that holds it."""

    record: BenchRecord
    file: Path


def run_bench(
    folder: Path,
    loaded: LoadedRecipe,
    home: Home,
    tools: Callable[[tuple[Stage, ...]], Resolver],
    settings: Bench,
    listener: Listener,
    only: tuple[str, ...] = (),
    threads: Mapping[str, int] | None = None,
) -> BenchOutcome:
    """Benchmark the models of a finished run, and store the result beside its folder: of a recipe
    with parts the joined models, then each part by itself.

    `loaded` is the run's recipe, whose goals apply; `tools` resolves the environments of its
    stages. `threads` are the targets with a number of threads of their own. Raises UsageError for
    an unknown target, and ConvkitError if the original cannot be measured:
    then nothing can be compared.
    """
    started = time.time()
    record = read_record(folder)
    if not any(target.files for target in record.targets):
        raise ConvkitError(f"run {record.id} built nothing to time; see convkit show {record.id}")
    absent = absent_parts(loaded.recipe, home, record.toolchain, may_resolve=False)
    stages = plan_stages(loaded.recipe, only, frozenset(absent))
    surroundings = gather(loaded, stages, home, record.toolchain, tools(stages))
    bench = _Bench(
        folder,
        record,
        loaded,
        home,
        settings,
        listener,
        stages,
        surroundings,
        Store(home.store),
        threads or {},
    )
    listener.stage_started(_STAGE, f"{bench.threads} threads")
    try:
        with in_use(home.store):
            made = bench.record_of(bench.measured(), started)
            for part in bench.parts():
                name = str(part.loaded.recipe.part_name)
                made = with_part(made, name, part.record_of(part.measured(), started))
    except NotMeasuredError as error:
        raise ConvkitError(f"the benchmark was stopped: {error}") from error
    listener.stage_finished(_STAGE, "done", time.time() - started)
    return BenchOutcome(made, write_bench(folder, made))


@dataclasses.dataclass(frozen=True)
class _Bench:
    """One benchmark in progress: of a model of one graph, of one part, or of the joined parts."""

    folder: Path
    record: RunRecord
    loaded: LoadedRecipe
    home: Home
    settings: Bench
    listener: Listener
    stages: tuple[Stage, ...]
    surroundings: ResolvedFacts
    store: Store
    own_threads: Mapping[str, int]

    @property
    def threads(self) -> int:
        """The compute threads of every model: by default, one per processor that we may use."""
        return self.settings.threads or usable_cores()

    def record_of(self, session: MeasuredSession, started: float) -> BenchRecord:
        """Return the record of what a session measured."""
        host = describe_host(self.record.toolchain)
        return bench_record(self.record, self.loaded.recipe, session, host, started)

    def parts(self) -> "Iterator[_Bench]":
        """Yield the benchmark of each part that has a target to time."""
        for part in self.loaded.recipe.graphs if self.loaded.recipe.parts else ():
            bench = dataclasses.replace(self, loaded=dataclasses.replace(self.loaded, recipe=part))
            if bench.reports():
                yield bench

    def reports(self) -> list[TargetReport]:
        """Return the targets to time, those without a figure included."""
        targets = self.loaded.recipe.targets
        return [
            each
            for each in self.record.targets
            if each.name in targets and self._last_stage(each.name) in self._by_id
        ]

    def _last_stage(self, target: str) -> str:
        """Return the stage in whose environment a target runs."""
        if self.loaded.recipe.parts:
            return join_id(target)
        versions = self.loaded.recipe.targets[target].versions
        return verify_id(target, versions[-1] if versions else None)

    def measured(self) -> MeasuredSession:
        """Return what the session measured; raises NotMeasuredError if the original, or a worker
        in the middle of the rounds, fails.
        """
        sizes = sizes_of(self.loaded.recipe, self.settings)
        reports = self.reports()
        absent = {each.name: why for each in reports if (why := self._absent(each)) is not None}
        timings: list[Timings] = []
        hellos: dict[str, list[Hello]] = {}
        results: dict[str, BenchResult] = {}
        processes = 1
        wanted = self.settings.seconds * len(sizes)
        started = time.monotonic()
        while len(timings) < processes:
            if len(timings) == 1:
                processes = processes_left(processes, time.monotonic() - started, wanted)
            with self._members(sizes, reports, absent) as (members, loading):
                if not timings:
                    processes = processes_for(loading, wanted)
                progress = self._numbered(len(timings) + 1, processes)
                seconds = self.settings.seconds / processes
                timings.append(measure(members, sizes, seconds, progress, processes))
                for member in members:
                    hellos.setdefault(member.name, []).append(member.hello)
                if len(timings) == processes:
                    results = self._results(members)
        measured = {name: Measured(tuple(hellos[name]), result) for name, result in results.items()}
        names = tuple(each.name for each in reports)
        return MeasuredSession(
            names, sizes, merged(timings), measured, absent, self.threads, self.settings.seconds
        )

    @contextlib.contextmanager
    def _members(
        self, sizes: tuple[BenchSize, ...], reports: list[TargetReport], absent: dict[str, str]
    ) -> Iterator[tuple[list[TimedModel], float]]:
        """Start a process for the original and each target; yield them, with the seconds that it
        took. A target that cannot be loaded is added to `absent`.
        """
        started = time.monotonic()
        present = [each.name for each in reports if each.name not in absent]
        timeout = self.loaded.recipe.verify.timeout
        with self._scratch() as scratch, bench_session(timeout) as session:
            original = self._join_original(session, scratch, sizes, present)
            members = [original]
            for name in present:
                try:
                    members.append(self._join_target(session, scratch, sizes, name, original))
                except NotMeasuredError as error:
                    absent[name] = str(error)
            yield members, time.monotonic() - started

    def _numbered(self, number: int, processes: int) -> Callable[[str, float | None], None]:
        """Return the listener to the progress of the models' processes with this number."""
        place = f", process {number} of {processes}" if processes > 1 else ""
        return lambda message, done: self._progress(
            message + place, None if done is None else (number - 1 + done) / processes
        )

    def _results(self, members: list[TimedModel]) -> dict[str, BenchResult]:
        """End the members, the original first: it writes what the profiles need."""
        results = {}
        for member in members:
            self._progress(f"finishing {member.name}")
            results[member.name] = member.end()
        if (original := results[ORIGINAL]).size_bytes is None:
            size = self._original_file_size()
            results[ORIGINAL] = dataclasses.replace(original, size_bytes=size)
        return results

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Create a folder for the workers' files; the store's views last as long."""
        try:
            with self.store.staging() as scratch:
                yield scratch
        finally:
            self.store.release_views()

    @property
    def _by_id(self) -> Mapping[str, Stage]:
        return {stage.id: stage for stage in self.stages}

    def _progress(self, message: str, done: float | None = None) -> None:
        self.listener.stage_progress(_STAGE, message, done)

    def _absent(self, report: TargetReport) -> str | None:
        """Return why a target gets no figure; None if it may get one."""
        for name, target in self.loaded.recipe.shares_of(report.name).items():
            if self._by_id[f"build:{name}"].stand_in:
                return f"simulated: this machine has no {target.device} for {target.runtime}"
            if runtimes()[target.runtime].module_of("bench") is None:
                return f"convkit cannot time {target.runtime} on this machine"
            if not (self.folder / "models" / name).is_dir():
                return f"was not built ({report.status})"
        return None

    def _join_original(
        self, session: BenchSession, scratch: Path, sizes: tuple[BenchSize, ...], targets: list[str]
    ) -> TimedModel:
        self._progress("loading the original")
        graphs = {name: str(file) for name in targets if (file := self._graph(name)) is not None}
        envelope = original_envelope(
            self.loaded, self.home, _output(scratch, ORIGINAL), sizes, session.address,
            self.threads, graphs,
        )  # fmt: skip
        python = self._python(reference_id(self.loaded.recipe))
        workers = WORKERS[self.record.toolchain]
        return session.join(ORIGINAL, python, envelope, workers, self._progress)

    def _join_target(
        self,
        session: BenchSession,
        scratch: Path,
        sizes: tuple[BenchSize, ...],
        name: str,
        original: TimedModel,
    ) -> TimedModel:
        self._progress(f"loading {name}")
        built = self.folder / "models" / name
        envelope = target_envelope(
            self.loaded, self.home, name, _output(scratch, name), built, original.output, sizes,
            session.address, self.own_threads.get(name, self.threads),
        )  # fmt: skip
        python = self._python(self._last_stage(name))
        workers = WORKERS[self.record.toolchain]
        return session.join(name, python, envelope, workers, self._progress)

    def _graph(self, name: str) -> Path | None:
        """Return the ONNX graph that names the modules of a target's nodes: its built file, or
        the exported graph if that is another format; None if there is none.
        """
        found = self.folder / "models" / name / _GRAPH_FILE
        if found.is_file():
            return found
        export = export_id(self.loaded.recipe, name)
        artifact = next((each.artifact for each in self.record.stages if each.id == export), None)
        if artifact is None:
            return None
        try:
            return self.store.view(artifact) / _GRAPH_FILE
        except StoreError:  # pruned: operators go by their nodes' names
            return None

    def _python(self, stage: str) -> Path:
        if self.record.toolchain == "host":
            return host_python()
        resolution = self.surroundings.resolutions[self._by_id[stage].environment]
        return ensure_environment(resolution, self.home.root, progress=self._progress).python

    def _original_file_size(self) -> int | None:
        """Return the size of an original that is an ONNX file, with its external weights."""
        model = self.loaded.recipe.reference_model
        if model.onnx is None:
            return None
        path = self.loaded.dirname / model.onnx
        return sum(file.stat().st_size for file in (path, *external_files(path)))


def _output(scratch: Path, name: str) -> Path:
    """Return an empty folder for a worker's files, in its own folder."""
    output = scratch / name / "output"
    output.mkdir(parents=True)
    return output
