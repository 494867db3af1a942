"""`convkit tune` whole, in this environment: interrupted, resumed, written to the recipe."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from two_layers import write_recipe
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.home import Home
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.tune_record import TuneRecord
from convkit.host.report.tune_page import render_tune
from convkit.host.tune.candidate_targets import Space
from convkit.host.tune.search_runs import TuneOptions
from convkit.host.tune.target_search import tune
from convkit.protocol.json_codec import decode
from convkit.runtimes.onnxruntime.target import OnnxRuntimeTarget

KEYS: dict[str, Any] = {
    "verify": {"tolerance": {"max_abs": 0.02}, "ladder": "quick"},  # int4 is beyond this
    "goals": {"size": "<= 0.6x original"},
    "bench": {"seconds": 0.05, "sizes": ["typical"], "threads": 1},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


class Heard(SilentListener):
    """Counts benchmarks and verifications that ran; may interrupt at a stage, as Ctrl-C would."""

    def __init__(self, interrupt_at: str | None = None) -> None:
        self.started: list[str] = []
        self.messages: list[str] = []
        self._interrupt_at = interrupt_at

    def stage_started(self, stage: str, reason: str) -> None:
        self.started.append(stage)
        self.messages.append(reason)
        if stage == self._interrupt_at:
            raise KeyboardInterrupt

    def stage_progress(self, stage: str, message: str, done: float | None) -> None:
        del stage, done
        self.messages.append(message)


@dataclasses.dataclass(frozen=True)
class Search:
    recipe: Path
    home: Path
    first: Heard
    second: Heard
    record: TuneRecord


@pytest.fixture(scope="module", autouse=True)
def _few_precisions() -> Iterator[None]:
    """One precision that passes, one that fails, one that needs another device: others only add
    time.
    """
    few = (
        {"precision": "float16"},
        {"precision": {"quantize": "int4-weights"}},
        {"device": "cuda", "precision": "float16"},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnnxRuntimeTarget, "variants", classmethod(lambda _: iter(few)))
        yield


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    folder = tmp_path_factory.mktemp("tune")
    recipe = write_recipe(folder, 64, 512, **KEYS)
    loaded = load_recipe(recipe)
    options = TuneOptions(Home(folder / "home"), loaded.recipe.bench, toolchain="host")
    space = Space(loaded, ("onnxruntime",))
    first, second = Heard(interrupt_at="tune settings"), Heard()
    with pytest.raises(KeyboardInterrupt):
        tune(space, options, first)
    return Search(recipe, folder / "home", first, second, tune(space, options, second))


@pytest.mark.slow
@pytest.mark.thorough
def test_an_interrupted_search_resumes_without_repeating_anything(search: Search) -> None:
    assert [each for each in search.first.started if each.startswith("verify:")]
    assert search.first.started.count("bench") == 1
    repeated = {stage for stage in search.first.started if not stage.startswith("tune ")}
    settled = {
        stage
        for stage in repeated
        if stage.startswith(("export", "reference", "verify:")) and "auto" not in stage
    }
    assert not settled & set(search.second.started)
    screening = search.second.started.index("tune screening")
    assert search.second.started[screening + 1] != "bench"  # the first search measured that


@pytest.mark.slow
def test_only_what_is_verified_and_meets_the_goals_is_on_the_frontier(search: Search) -> None:
    by_name = {each.name: each for each in search.record.candidates}
    for each in search.record.with_status("frontier"):
        assert each.figures.latency is not None
        assert each.figures.size_bytes <= 0.6 * search.record.original.size_bytes
    assert by_name["ort"].status == "missed"
    assert "goal missed: size <= 0.6x original" in by_name["ort"].why
    assert by_name["onnxruntime-int4-weights"].status == "failed"
    assert by_name["onnxruntime-float16-cuda"].status == "left-out"
    assert "no cuda" in by_name["onnxruntime-float16-cuda"].why
    assert search.record.choice in search.record.with_status("frontier")


@pytest.mark.slow
def test_what_failed_or_missed_a_goal_is_not_refined_or_timed_again(search: Search) -> None:
    names = {each.name for each in search.record.candidates}
    assert "onnxruntime-float32-extended" not in names
    assert "onnxruntime-int4-weights-extended" not in names
    failed = [each for each in search.record.candidates if each.status == "failed"]
    assert failed
    assert all(each.figures.latency is None for each in failed)


@pytest.mark.slow
def test_the_time_left_is_told(search: Search) -> None:
    assert any("left" in message for message in search.first.messages)


@pytest.mark.slow
def test_the_page_shows_the_frontier(search: Search) -> None:
    page = render_tune(search.record)
    assert f"{search.record.chosen} is the best for speed." in page
    assert page.count("<svg") == 2
    assert "goal missed" in page


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_writes_the_best_one_into_the_recipe(search: Search) -> None:
    before = search.recipe.read_text()
    asked = ["tune", str(search.recipe), "--toolchain", "host", "--home", str(search.home)]
    done = CliRunner().invoke(app, [*asked, "--runtime", "onnxruntime", "--write"])
    assert done.exit_code == 0, done.output
    (file,) = search.home.glob("tune/small/*.json")
    found = decode(TuneRecord, json.loads(file.read_text()))
    written = load_recipe(search.recipe).document.content["targets"]
    assert written == {**KEYS["targets"], found.chosen: found.choice.target}
    assert "+" in done.output
    assert search.recipe.read_text() != before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--choose", "x"], "pass both"),
        (["--runtime", "nope"], "no such runtime"),
        (["--like", "nope"], "no such target"),
    ],
)
def test_unknown_names_are_refused(tmp_path: Path, options: list[str], told: str) -> None:
    recipe = write_recipe(tmp_path, 64, 512, **KEYS)
    done = CliRunner().invoke(app, ["tune", str(recipe), "--home", str(tmp_path), *options])
    assert told in str(done.exception)
