"""Export and reference share a model that is loaded once, and notice nothing of it."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from other_processes import gone_soon, soon
from test_fork_servers import run, state
from watched_workers import Watched, running_servers

import convkit.host.processes.fork_servers
from convkit.host.home import Home
from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import WORKERS, FreshProcesses, Launch, WorkerProcess
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.jobs.preloading import shared_source
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import PROTOCOL, Answer, CustomOps, Envelope, Source, Translation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, every worker is fresh"),
]

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 64,
    "max_position_embeddings": 16,
}
TENSORS = {
    "axes": {"sequence": {"min": 2, "typical": 4, "max": 8}},
    "inputs": [
        {"name": "input_ids", "dtype": "int64", "shape": [1, "sequence"], "sample": "token_ids"}
    ],
    "outputs": [{"name": "last_hidden_state", "dtype": "float32", "shape": [1, "sequence", 16]}],
    "verify": {"ladder": "quick"},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


class Family(Watched):
    """Remembers each worker's parent, and what it answered."""

    def __init__(self, strategy: Any) -> None:
        super().__init__(strategy)
        self.parents: dict[str, int] = {}
        self.results: dict[str, Path] = {}
        self.answers: dict[str, Answer] = {}

    def start(self, launch: Launch) -> WorkerProcess:
        worker = super().start(launch)
        self.parents[launch.envelope.job] = psutil.Process(worker.pid).ppid()
        threading.Thread(target=self._keep, args=(launch,), daemon=True).start()
        return worker

    def _keep(self, launch: Launch) -> None:
        while launch.folder.exists():
            with contextlib.suppress(OSError, ValueError):
                content = json.loads(launch.result.read_text(encoding="utf-8"))
                self.answers[launch.envelope.job] = decode(Answer, content)
                return
            time.sleep(0.005)


def run_with(strategy: Any, folder: Path, model: dict[str, Any], home: Path) -> RunRecord:
    recipe = {"schema": 1, "name": "tiny", "model": model, "export": {"exporter": "torch"}}
    recipe |= TENSORS | {"tools": {"python": "3.11"}}
    folder.mkdir(exist_ok=True)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKERS, "host", strategy)
        return run_recipe(RunOptions(path, Home(home), toolchain="host", track=False)).record


@pytest.mark.thorough
def test_two_stages_share_a_model_and_make_what_fresh_ones_do(
    tmp_path: Path, servers: ForkServers
) -> None:
    """Also with files that the model is loaded from: each stage reports all of them."""
    from transformers import BertConfig, BertModel

    BertModel(BertConfig(**TINY)).save_pretrained(tmp_path / "saved")
    model = {"path": str(tmp_path / "saved"), "task": "feature-extraction"}
    fresh = Family(FreshProcesses())
    expected = run_with(fresh, tmp_path / "recipe", model, tmp_path / "fresh")
    before = running_servers()
    shared = Family(servers)
    found = run_with(shared, tmp_path / "recipe", model, tmp_path / "shared")
    assert shared.parents["export"] == shared.parents["reference"]
    assert shared.parents["export"] not in before | running_servers()
    assert gone_soon(shared.parents["export"]), "it outlives its stages"
    assert [stage.status for stage in found.stages] == ["done"] * len(found.stages)
    for stage, other in zip(expected.stages, found.stages, strict=True):
        assert (stage.id, stage.findings, stage.versions) == (
            other.id,
            other.findings,
            other.versions,
        )
        if stage.kind != "verify":
            assert stage.artifact == other.artifact, stage.id
    for job in ("export", "reference"):
        files = fresh.answers[job].opened
        assert {"config.json", "model.safetensors"} <= {Path(file).name for file in files}
        assert shared.answers[job].opened == files, job


@pytest.mark.thorough
def test_a_model_that_does_not_load_is_reported_by_its_stages(
    tmp_path: Path, servers: ForkServers
) -> None:
    model = {"config": {"architecture": "bert", "seed": 0, "overrides": TINY | {"depth": 2}}}
    found = run_with(servers, tmp_path / "recipe", model, tmp_path / "home")
    for stage in found.stages[:2]:
        assert stage.status == "broken"
        assert str(stage.error).startswith("model.config.overrides.depth: bert has no such key")


def _loading(patch: pytest.MonkeyPatch, function: str, argument: object) -> None:
    """Let a loader call something else for each worker."""
    patch.setattr(convkit.host.processes.fork_servers, "LOAD_MODEL", function)
    patch.setattr(convkit.host.processes.fork_servers, "shared_source", lambda _: argument)


def test_a_load_that_never_ends_is_over_at_the_stage_s_timeout(
    tmp_path: Path, servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    state(tmp_path, servers, "probe")  # its imports do not count
    _loading(monkeypatch, "time:sleep", 600)
    outcome = run(tmp_path, servers, "hang", timeout_seconds=1.0)
    assert (outcome.ending, outcome.answer) == ("timed_out", None)


@pytest.mark.thorough
def test_closing_does_not_wait_for_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _loading(monkeypatch, "time:sleep", 600)
    servers = ForkServers()
    workers = Watched(servers)
    before = running_servers()
    thread = threading.Thread(target=state, args=(tmp_path, workers, "probe"))
    thread.start()
    assert soon(
        lambda: any(psutil.Process(one).children() for one in running_servers() - before), 60
    )
    (server,) = running_servers() - before
    (loader,) = psutil.Process(server).children()
    servers.close()
    assert gone_soon(loader.pid)
    thread.join()
    assert workers.last_is_fresh


@pytest.mark.thorough
def test_a_loader_with_threads_does_not_fork(
    tmp_path: Path, forked: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their locks could be held at a fork. The stage is forked from the server instead."""
    state(tmp_path, forked, "probe")
    _loading(monkeypatch, "importlib:import_module", "pyarrow")
    seen = state(tmp_path, forked, "probe")
    assert not forked.last_is_fresh
    assert "pyarrow" not in seen["modules"]


def test_a_stage_s_log_has_what_was_printed_while_its_model_was_loaded(
    tmp_path: Path, forked: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    _loading(monkeypatch, "builtins:print", "loading weights")
    outcome = run(tmp_path, forked, "speak")
    assert outcome.log.index("loading weights") < outcome.log.index("to stdout")


SHAREABLE = Source("config", identifier="bert")


def asked(job: Any = "export", ops: CustomOps | None = None, **changes: Any) -> Envelope:
    source = encode(SHAREABLE) | changes
    return Envelope(PROTOCOL, job, "", {"source": source}, custom_ops=ops or CustomOps())


def test_models_that_run_other_code_are_not_shared() -> None:
    assert shared_source(asked()) == encode(SHAREABLE)
    assert shared_source(asked("reference")) == encode(SHAREABLE)
    for kind in ("factory", "onnx", "torchscript", "exported"):
        assert shared_source(asked(kind=kind)) is None
    assert shared_source(asked(allow_remote_code=True)) is None
    assert shared_source(asked(allow_pickle=True)) is None
    assert shared_source(asked(ops=CustomOps(translations=(Translation("a.py", "f"),)))) is None
    assert shared_source(asked("build")) is None
