"""The parts of a fleet that need no cluster: tags, the files that travel, what a worker does with
an order.
"""

import dataclasses
import json
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from fleet_runs import write_recipe
from small_fleet import write_stub
from test_fleet_placement import PLAIN

from convkit.host.facts.planning_facts import gather
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.fleet import dask_cluster as cluster_module
from convkit.host.fleet import remote_stage, run_fleet
from convkit.host.fleet.dask_cluster import Cluster
from convkit.host.fleet.recipe_bundle import bundle_of
from convkit.host.fleet.remote_stage import perform
from convkit.host.fleet.stage_orders import Answered, StageOrder
from convkit.host.fleet.stage_sending import FleetSettler
from convkit.host.fleet.worker_tags import announced_tags
from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.processes.progress_events import SilentListener
from convkit.host.processes.worker_start import WORKERS, FreshProcesses
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.store import Store
from convkit.protocol.errors import FleetError, Interrupted, StoreError, StoreUnreachable
from convkit.protocol.json_codec import decode, encode


def test_a_plain_path_is_the_same_store_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_fleet._url("shared") == (tmp_path / "shared").as_uri()
    assert run_fleet._url("s3://models/convkit") == "s3://models/convkit"


def test_files_travel_with_their_places_kept(tmp_path: Path) -> None:
    inputs = [
        {
            "name": "ids",
            "dtype": "int64",
            "shape": ["batch", "length"],
            "sample": {"file": "data/ids.npy"},
        },
        {"name": "mask", "dtype": "int64", "shape": ["batch", "length"], "sample": "padding_mask"},
    ]
    for name in (
        "recipes/data/ids.npy",
        "models/helper.py",
        "models/parts/__init__.py",
        "models/parts/deep/a.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "models" / "parts" / "weights.bin").write_text("not code")
    (tmp_path / "models" / "other").mkdir()
    (tmp_path / "models" / "other" / "no_package.py").write_text("x")
    bundle = bundle_of(load_recipe(write_recipe(tmp_path, inputs=inputs)))
    assert bundle.place == "recipes/recipe.yaml"
    assert sorted(bundle.files) == [
        "models/helper.py",
        "models/parts/__init__.py",
        "models/parts/deep/a.py",
        "models/small.py",
        "recipes/data/ids.npy",
    ]


def test_rows_and_the_files_of_preprocessing_travel(tmp_path: Path) -> None:
    pixels = {
        "name": "pixels",
        "dtype": "float32",
        "shape": ["batch", 3, 8, 8],
        "preprocess": {"image": {}, "files": ["one.png"], "processor": {"call": "own.py:prepare"}},
    }
    task = {
        "data": "photos/",
        "inputs": {"pixels": "image"},
        "labels": "label",
        "metric": "accuracy",
        "max_drop": 0.1,
    }
    for name in ("photos/cat/1.png", "photos/dog/1.png", "one.png"):
        (tmp_path / "recipes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "recipes" / name).touch()
    (tmp_path / "recipes" / "own.py").write_text("def prepare(image): ...")
    path = write_recipe(
        tmp_path, model={"config": {"architecture": "bert"}}, inputs=[pixels], evaluate=task
    )
    assert sorted(bundle_of(load_recipe(path)).files) == [
        "one.png",
        "own.py",
        "photos/cat/1.png",
        "photos/dog/1.png",
    ]


def test_a_recipe_without_files_has_none_to_send(tmp_path: Path) -> None:
    bundle = bundle_of(
        load_recipe(write_recipe(tmp_path, model={"config": {"architecture": "bert"}}))
    )
    assert (bundle.files, bundle.place) == ({}, "recipe.yaml")


# What a worker does with an order, in this process.


class OneOrder:
    """Keeps what a run would send to its fleet, and answers as told."""

    address = "tcp://nowhere"

    def __init__(self, answer: Any) -> None:
        self.order: StageOrder | None = None
        self._answer = answer

    def tags(self) -> list[dict[str, float]]:
        return [announced_tags({})]

    def perform(self, task: Any, argument: str, *_: Any) -> str:
        self.order = decode(StageOrder, json.loads(argument))
        return json.dumps(encode(self._answer(self.order)))


@pytest.fixture
def stubbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = write_stub(tmp_path / "stub", seconds=0.0).parent / "stub.py"
    monkeypatch.setitem(WORKERS, "host", FreshProcesses(stub))


def settler(tmp_path: Path, answer: Any, cancelled: threading.Event | None = None) -> FleetSettler:
    loaded = load_recipe(write_recipe(tmp_path))
    home = Home(tmp_path / "home")
    stages = plan_stages(loaded.recipe)
    surroundings = gather(loaded, stages, home, "host", recorded_tools({}))
    local = StageRunner(
        loaded,
        surroundings,
        home,
        Store(home.store),
        SilentListener(),
        cancelled or threading.Event(),
        force=False,
    )
    return FleetSettler.of(local, OneOrder(answer), (tmp_path / "shared").as_uri(), "topic")  # type: ignore[arg-type]


def work(order: StageOrder, home: Path) -> Answered:
    return perform(order, Home(home), SilentListener(), threading.Event(), home.name)


def test_of_two_workers_on_one_key_the_first_stands(stubbed: None, tmp_path: Path) -> None:
    def both(order: StageOrder) -> Answered:
        # As when a network parts: both run it, and neither knows of the other.
        first = work(order, tmp_path / "first")
        record = SharedStore(order.store).record(order.key)
        assert record is not None
        second = work(dataclasses.replace(order, force=True), tmp_path / "second")
        assert (first.second, second.kept) == (None, True)
        assert second.second not in (None, record.record.artifact)
        assert Store(tmp_path / "second" / "store").record(order.key) == record.record
        return second

    asked = settler(tmp_path, both)
    stage = plan_stages(asked.local.loaded.recipe)[0]
    settled = asked.settle(stage, {})
    standing = asked.shared.record(settled.report.key)
    assert standing is not None
    assert settled.report.artifact == standing.record.artifact
    assert [finding.code for finding in settled.report.findings] == ["R101"]
    assert asked.local.store.record(settled.report.key) == standing.record


def test_one_worker_alone_is_no_finding(stubbed: None, tmp_path: Path) -> None:
    asked = settler(tmp_path, lambda order: work(order, tmp_path / "only"))
    settled = asked.settle(plan_stages(asked.local.loaded.recipe)[0], {})
    assert (settled.report.status, settled.report.findings) == ("done", ())
    assert settled.report.reason == "not computed before (on only)"


def test_a_worker_that_was_stopped_is_replaced_and_not_for_ever(
    stubbed: None, tmp_path: Path
) -> None:
    asked_times: list[str] = []

    def at_the_third(order: StageOrder) -> Answered:
        asked_times.append(order.key)
        return (
            Answered("w", interrupted=True) if len(asked_times) < 3 else work(order, tmp_path / "w")
        )

    asked = settler(tmp_path, at_the_third)
    stage = plan_stages(asked.local.loaded.recipe)[0]
    assert asked.settle(stage, {}).report.status == "done"
    assert len(asked_times) == 3
    never = settler(tmp_path / "never", lambda _: Answered("w", interrupted=True))
    with pytest.raises(FleetError, match="workers were stopped"):
        never.settle(stage, {})
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Interrupted):
        settler(
            tmp_path / "cancelled", lambda _: Answered("w", interrupted=True), cancelled
        ).settle(stage, {})


def test_an_order_that_would_be_another_stage_here_is_refused(
    stubbed: None, tmp_path: Path
) -> None:
    def changed(order: StageOrder) -> Answered:
        (tmp_path / "models" / "small.py").write_text("def build(): ...\n")
        other = bundle_of(load_recipe(tmp_path / "recipes" / "recipe.yaml"))
        files = SharedStore(order.store).push_files(other.files, Store(tmp_path / "x").digests)
        return work(dataclasses.replace(order, files=files), tmp_path / "w")

    asked = settler(tmp_path, changed)
    with pytest.raises(FleetError, match=r"source\.path changed"):
        asked.settle(plan_stages(asked.local.loaded.recipe)[0], {})


def test_an_order_whose_files_are_damaged_is_refused(stubbed: None, tmp_path: Path) -> None:
    def damaged(order: StageOrder) -> Answered:
        for path in (tmp_path / "shared" / "objects").rglob("*"):
            if path.is_file():
                path.unlink()
                path.write_text("other code")
        return work(order, tmp_path / "w")

    asked = settler(tmp_path, damaged)
    with pytest.raises(StoreError, match="damaged: the bytes do not match"):
        asked.settle(plan_stages(asked.local.loaded.recipe)[0], {})


# The task, as Dask calls it.


class DaskWorker:
    name, status = "w7", types.SimpleNamespace(name="running")

    def __init__(self, state: str = "executing") -> None:
        self.state = types.SimpleNamespace(tasks={"key": types.SimpleNamespace(state=state)})
        self.events: list[dict[str, Any]] = []

    def get_current_task(self) -> str:
        return "key"

    def log_event(self, topic: str, message: dict[str, Any]) -> None:
        self.events.append({"topic": topic, **message})


def order_text(tmp_path: Path) -> str:
    kept: list[StageOrder] = []

    def keep(order: StageOrder) -> Answered:
        kept.append(order)
        return Answered("w", error="kept")

    asked = settler(tmp_path, keep)
    with pytest.raises(FleetError, match="kept"):
        asked.settle(plan_stages(asked.local.loaded.recipe)[0], {})
    return json.dumps(encode(kept[0]))


def answer_to(text: str, monkeypatch: pytest.MonkeyPatch, worker: DaskWorker) -> Answered:
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    return decode(Answered, json.loads(remote_stage.run_stage(text)))


def test_the_task_answers_and_tells_its_progress(
    stubbed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = DaskWorker()
    real = remote_stage.StageRunner.settle

    def settle(self: StageRunner, *given: Any) -> Any:
        for done in (0.1, 0.2):
            self.listener.stage_progress("export", "at it", done)
        return real(self, *given)

    monkeypatch.setattr(remote_stage.StageRunner, "settle", settle)
    answer = answer_to(order_text(tmp_path), monkeypatch, worker)
    assert (answer.worker, answer.kept, answer.error) == ("w7", True, None)
    assert worker.events == [
        {"topic": "topic", "stage": "export", "message": "at it", "done": 0.1}
    ], "not too many"


def test_a_task_that_nobody_wants_any_more_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = write_stub(tmp_path / "stub", seconds=60).parent / "stub.py"
    monkeypatch.setitem(WORKERS, "host", FreshProcesses(stub))
    started = time.monotonic()
    assert answer_to(order_text(tmp_path), monkeypatch, DaskWorker("cancelled")).interrupted
    assert time.monotonic() < started + 20


def test_whatever_goes_wrong_in_a_task_is_told(
    stubbed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = order_text(tmp_path)
    newer = json.dumps(json.loads(text) | {"format": 2})
    assert "does not understand the run" in str(answer_to(newer, monkeypatch, DaskWorker()).error)
    with monkeypatch.context() as patch:
        patch.setattr(remote_stage, "gather", lambda *_, **__: 1 / 0)
        error = str(answer_to(text, patch, DaskWorker()).error)
    assert "bug in convkit" in error
    assert "ZeroDivisionError" in error
    shared = tmp_path / "shared"
    shared.rename(tmp_path / "away")
    shared.write_text("a file stands in the way")
    with pytest.raises(StoreUnreachable):  # for another try
        answer_to(text, monkeypatch, DaskWorker())


# Waiting for an answer.


class Future:
    """A Dask future that answers at the nth question, and remembers being cancelled."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.cancelled = answers, False

    def add_done_callback(self, told: Any) -> None:
        told(self)

    def result(self, timeout: float) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            time.sleep(0.002)
            raise answer
        return answer

    def cancel(self) -> None:
        self.cancelled = True


class Client:
    def __init__(self, future: Future, workers: dict[str, Any]) -> None:
        self.future, self._workers = future, workers

    def submit(self, *_: Any, **__: Any) -> Future:
        return self.future

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": self._workers}


def wait_for(*answers: Any, **resources: float) -> tuple[str, Future]:
    future = Future(list(answers))
    client = Client(future, {"a": {"resources": PLAIN, "nthreads": 1}})
    try:
        return (
            Cluster("tcp://here", client).perform(str, "", "export", resources, threading.Event()),
            future,
        )
    finally:
        assert future.cancelled


def test_an_answer_that_was_lost_is_waited_for_again() -> None:
    assert wait_for(TimeoutError(), TimeoutError(), "answer")[0] == "answer"


def test_errors_of_the_cluster_are_told_in_words() -> None:
    class KilledWorker(Exception):
        pass

    class FutureCancelledError(Exception):
        pass

    with pytest.raises(FleetError, match="every worker that ran it was lost"):
        wait_for(KilledWorker())
    with pytest.raises(FleetError, match="scheduler at tcp://here was stopped or restarted"):
        wait_for(FutureCancelledError())
    with pytest.raises(StoreError, match="as it was"):
        wait_for(StoreError("as it was"))


def test_a_stage_does_not_wait_for_ever_for_a_worker_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_module, "_FRESH_SECONDS", 0.01)
    monkeypatch.setattr(cluster_module, "_GONE_SECONDS", 0.05)
    with pytest.raises(cluster_module.NoWorkerLeft):
        wait_for(*[TimeoutError()] * 1000, CUDA=1.0)
    assert wait_for(*[TimeoutError()] * 1000, "answer", MEM=1.0)[0] == "answer"
