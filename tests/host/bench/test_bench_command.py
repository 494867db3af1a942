"""`convkit bench` whole, in this environment: a tiny model, real workers, real profiles."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
from two_layers import write_recipe
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.checks.recorded_inputs import recorded_resolutions
from convkit.host.audit.past_runs.run_integrity import Digester, check_folder
from convkit.host.bench import bench_command
from convkit.host.bench.bench_command import BenchOutcome, run_bench
from convkit.host.bench.bench_session import BenchSession, NotMeasuredError, TimedModel
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.home import Home
from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.bench_record import latest_bench, read_bench
from convkit.host.record.provenance import read_provenance
from convkit.host.report.bench_section import how_text
from convkit.host.report.report_file import render_report
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.digests import write_json
from convkit.host.track.run_tracker import prepare
from convkit.protocol.errors import ConvkitError, UsageError

KEYS: dict[str, Any] = {
    "verify": {"tolerance": {"max_abs": 1e-4}},
    "bench": {"seconds": 0.2, "threads": 1},
    "goals": {"latency": {"p50": "<= 1000x original"}},
    "targets": {
        "ort": {"runtime": "onnxruntime"},
        "slow": {
            "runtime": "onnxruntime",
            "optimization": "none",
            "precision": {"quantize": "static-int8"},
            "tolerance": {"cosine": 0.9},
            "goals": {"latency": {"p50": "<= 0.001x original"}},
        },
        "trt": {"runtime": "tensorrt", "precision": "float16", "tolerance": {"max_abs": 0.05}},
    },
}


@dataclasses.dataclass(frozen=True)
class Finished:
    recipe: Path
    home: Home
    run: RunOutcome

    def bench(
        self, only: tuple[str, ...] = (), listener: Listener | None = None, **settings: Any
    ) -> BenchOutcome:
        loaded = load_recipe(self.recipe)
        return run_bench(
            self.run.folder,
            loaded,
            self.home,
            lambda stages: recorded_tools(recorded_resolutions(self.run.folder, stages)),
            loaded.recipe.bench.model_copy(update=settings),
            listener or SilentListener(),
            only,
        )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("bench")
    recipe = write_recipe(folder, 32, 64, **KEYS)
    home = Home(folder / "home")
    return Finished(
        recipe, home, run_recipe(RunOptions(recipe, home, toolchain="host", track=False))
    )


@pytest.fixture(scope="module")
def measured(finished: Finished) -> BenchOutcome:
    return finished.bench()


@pytest.mark.thorough
def test_every_model_that_can_run_is_measured_at_both_sizes(measured: BenchOutcome) -> None:
    record = measured.record
    assert [model.name for model in record.models] == ["original", "ort", "slow", "trt"]
    for model in record.models[:3]:
        assert [size.size for size in model.sizes] == ["typical", "largest"]
        assert all(size.p50.low <= size.p50.value <= size.p50.high for size in model.sizes)
        assert model.first_call_seconds > 0
        assert model.load_seconds > 0
        assert model.peak_memory_bytes > 10 << 20
        assert model.size_bytes > 1000
    assert record.threads == 1
    assert record.rounds["typical"] >= 5
    assert record.original.sizes[0].ratios == {}
    assert {"p50", "p90"} <= set(record.targets[0].sizes[0].ratios)


def test_the_original_is_as_large_as_its_weights(measured: BenchOutcome) -> None:
    assert measured.record.original.size_bytes == 4 * (32 * 64 + 64 + 64 * 3 + 3)


def test_a_simulated_target_gets_no_figure_and_says_so(measured: BenchOutcome) -> None:
    trt = measured.record.models[3]
    assert "simulated" in trt.absent
    assert (trt.sizes, trt.load_seconds) == ((), None)
    (goal,) = [goal for goal in measured.record.goals if goal.target == "trt"]
    assert goal.status == "no-figure"


def test_a_slow_target_misses_its_goal_for_the_right_reason(measured: BenchOutcome) -> None:
    missed = [finding for finding in measured.record.findings if finding.code == "E401"]
    assert missed
    assert all(finding.message.startswith("slow:") for finding in missed)
    assert "unfused" in missed[0].evidence["reasons"]
    assert any("first" in line for line in missed[0].evidence["most_expensive"])
    assert measured.record.exit_code == 1
    assert {goal.status for goal in measured.record.goals if goal.target == "ort"} == {"met"}


def test_the_summary_names_the_smallest_and_the_most_accurate(measured: BenchOutcome) -> None:
    _, small, accurate = measured.record.summary
    assert small.startswith("smallest: trt")
    assert accurate.startswith("most accurate: ort")


def test_the_result_lies_beside_the_run_which_stays_intact(
    finished: Finished, measured: BenchOutcome
) -> None:
    folder = finished.run.folder
    assert measured.file.parent == folder.with_name(f"{folder.name}.bench")
    assert read_bench(measured.file) == measured.record
    assert latest_bench(folder) == measured.record
    found = check_folder(folder, finished.run.record, read_provenance(folder), None, Digester())
    assert found.problems == ()
    assert finished.home.run_folders() == [folder]


def test_the_report_shows_it(finished: Finished, measured: BenchOutcome) -> None:
    page = render_report(finished.run.record, bench=measured.record)
    assert "Median latency at typical" in page
    assert "unfused" not in render_report(finished.run.record)
    assert "E401" in page
    assert "simulated: this machine has no cuda" in page


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text('{"format": 1}')
    with pytest.raises(ConvkitError, match=r"one\.json: no readable benchmark"):
        read_bench(file)
    file.write_text('{"format": 9}')
    with pytest.raises(ConvkitError, match="has format 9"):
        read_bench(file)


def test_an_unknown_target_is_refused(finished: Finished) -> None:
    with pytest.raises(UsageError, match="no such target"):
        finished.bench(only=("nope",))


@pytest.mark.thorough
def test_sizes_of_axes_are_measured_once_each(finished: Finished) -> None:
    outcome = finished.bench(only=("ort",), sizes=({"batch": 2}, "largest", {"batch": 16}))
    assert list(outcome.record.rounds) == ["batch=2", "largest"]
    assert outcome.record.original.sizes[0].sizes == {"batch": 2}


class Killer(SilentListener):
    """Kills a target's worker in the second round, as a memory guard would."""

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        del stage, done
        if "round 2" not in message:
            return
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).name == "ort":
                    process.kill()


def test_a_worker_that_dies_ends_the_benchmark(finished: Finished) -> None:
    before = list(finished.run.folder.parent.glob("*.bench/*"))
    with pytest.raises(ConvkitError, match=r"the benchmark was stopped: .*killed"):
        finished.bench(only=("ort",), listener=Killer())
    assert list(finished.run.folder.parent.glob("*.bench/*")) == before


class Processes(SilentListener):
    """Notes the processes of a target's workers, and how far each says that the whole is."""

    def __init__(self) -> None:
        self.found: set[int] = set()
        self.shares: list[float] = []

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        del stage
        if done is None or "round 1 of" not in message:
            return
        self.shares.append(done)
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()).name == "ort":
                    self.found.add(process.pid)


def test_every_model_gets_new_processes(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "processes_for", lambda *_: 2)
    listener = Processes()
    outcome = finished.bench(only=("ort",), listener=listener, sizes=("typical",))
    assert len(listener.found) == 2
    assert listener.shares == [0.0, 0.5]
    assert outcome.record.processes == 2
    assert outcome.record.rounds["typical"] >= 6
    assert outcome.record.targets[0].profile is not None
    assert "in 2 processes" in how_text(outcome.record, "typical")


def test_a_target_that_cannot_be_loaded_again_gets_no_figure_and_says_why(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "processes_for", lambda *_: 2)
    join, joined = BenchSession.join, []

    def once(self: BenchSession, name: str, *given: Any) -> TimedModel:
        joined.append(name)
        if joined.count("ort") > 1 and name == "ort":
            raise NotMeasuredError("no memory left")
        return join(self, name, *given)

    monkeypatch.setattr(BenchSession, "join", once)
    outcome = finished.bench(only=("ort", "slow"), sizes=("typical",))
    ort, slow = outcome.record.targets
    assert (ort.absent, ort.sizes) == ("no memory left", ())
    assert slow.at("typical") is not None


def test_a_run_without_built_files_is_refused(finished: Finished, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.run.folder, folder)
    record = dataclasses.replace(
        finished.run.record,
        targets=tuple(
            dataclasses.replace(target, files=()) for target in finished.run.record.targets
        ),
    )
    write_json(folder / "result.json", record)
    broken = dataclasses.replace(
        finished, run=dataclasses.replace(finished.run, folder=folder, record=record)
    )
    with pytest.raises(ConvkitError, match="built nothing to time"):
        broken.bench()


@pytest.mark.thorough
def test_mlflow_has_the_figures_of_the_run(finished: Finished, measured: BenchOutcome) -> None:
    tracker = prepare(None, finished.home.root)
    tracker.log_bench(finished.run.record, finished.run.folder, measured.record)
    tracked = tracker.log(finished.run.record, finished.run.folder)
    metrics = tracker.client.get_run(tracked.parent_run_id).data.metrics
    ort = measured.record.targets[0]
    assert metrics["ort/bench/typical/p50_seconds"] == ort.sizes[0].p50.value
    assert metrics["ort/bench/largest/p50_ratio"] == ort.sizes[1].ratios["p50"].value
    assert metrics["original/bench/peak_memory_bytes"] > 0
    assert not [name for name in metrics if name.startswith("trt/bench")]


def test_the_command_prints_json_and_exits_by_the_goals(finished: Finished) -> None:
    asked = ["bench", str(finished.run.folder), "--home", str(finished.home.root), "--no-track"]
    asked += ["--only", "slow", "--size", "batch=2", "--seconds", "0.05", "--json"]
    done = CliRunner().invoke(app, asked)
    record = json.loads(done.stdout)
    assert [model["name"] for model in record["models"]] == ["original", "slow"]
    assert [goal["status"] for goal in record["goals"]] == ["missed"]
    assert done.exit_code == 1
