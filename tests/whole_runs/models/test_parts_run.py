"""Recipes with parts through `convkit run` whole, in this environment: small ONNX graphs."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small_parts import HEAD, recipe, tensor, whole, write
from test_low_precision import found, run

import convkit
from convkit.cli.output.run_printing import built_lines
from convkit.host.audit.checks.judged_again import judge_again
from convkit.host.audit.checks.recorded_inputs import recorded_resolutions
from convkit.host.bench.bench_command import run_bench
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.home import Home
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.keys.bench import Bench
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import TargetReport
from convkit.host.run.plan_command import forecast
from convkit.host.run.rejudging import parse_tolerance, rejudge
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import ModelFileError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recipe"), recipe())


@pytest.fixture(scope="module")
def sound(path: Path, home: Path) -> RunOutcome:
    return run(path, home)


def targets(outcome: RunOutcome) -> dict[str, TargetReport]:
    return {target.name: target for target in outcome.record.targets}


def feeds() -> dict[str, Any]:
    random = np.random.default_rng(0)
    shapes = {"x": (2, 3), "start": (2, 3), "rates": (2,), "biases": (2,)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def expected(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(folder / "whole.onnx"), providers=["CPUExecutionProvider"]
    )
    return dict(zip(("y", "notes"), session.run(None, given), strict=True))


class TestASoundModel:
    def test_the_parts_and_the_joined_target_are_verified(self, sound: RunOutcome) -> None:
        assert sound.record.exit_code == 0
        assert {name: each.status for name, each in targets(sound).items()} == dict.fromkeys(
            ("ort", "ort/encoder", "ort/cell", "ort/head"), "verified"
        )
        joined = targets(sound)["ort"]
        (verification,) = joined.verifications
        compared = {output.output for case in verification.cases for output in case.outputs}
        assert compared == {"y", "notes"}
        parts = [each for name, each in targets(sound).items() if "/" in name]
        assert joined.size_bytes == sum(part.size_bytes for part in parts)

    def test_the_whole_is_opened_and_called_by_name(self, sound: RunOutcome, path: Path) -> None:
        session = convkit.load(sound.folder / "models" / "ort")
        assert [spec.name for spec in session.inputs] == ["x", "start", "rates", "biases"]
        given = feeds()
        made = session(given)
        for name, values in expected(path.parent, given).items():
            assert made[name] == pytest.approx(values, abs=1e-5)

    def test_a_part_is_opened_by_itself(self, sound: RunOutcome) -> None:
        head = convkit.load(sound.folder / "models" / "ort" / "head")
        state = np.ones((1, 3), np.float32)
        assert head(state=state)["y"].tolist() == [[2.0, 2.0, 2.0]]

    def test_a_damaged_join_is_refused(self, sound: RunOutcome, tmp_path: Path) -> None:
        (tmp_path / "join.json").write_text("{}")
        with pytest.raises(ModelFileError, match=r"join\.json cannot be read"):
            convkit.load(tmp_path)

    @pytest.mark.thorough
    def test_the_second_run_is_up_to_date(self, sound: RunOutcome, path: Path, home: Path) -> None:
        again = run(path, home)
        assert again.up_to_date
        assert again.record.id == sound.record.id
        rows = forecast(path, Home(home), (), "host")
        assert {row.state for row in rows} == {"hit"}

    def test_a_stored_run_is_judged_again(self, sound: RunOutcome) -> None:
        again = rejudge(sound.folder, None)
        assert [each.status for each in again.targets] == 4 * ["verified"]

    def test_an_audit_finds_nothing_wrong_and_a_forged_share_s_verdict(
        self, sound: RunOutcome
    ) -> None:
        again = judge_again(sound.folder, sound.record, same_code=True)
        assert again.contradictions == ()
        forged = [
            dataclasses.replace(each, device="cuda") if each.name == "ort/cell" else each
            for each in sound.record.targets
        ]
        record = dataclasses.replace(sound.record, targets=tuple(forged))
        found = judge_again(sound.folder, record, same_code=True).contradictions
        assert any(
            each.message == "ort/cell: device cuda, but the recipe says cpu" for each in found
        )

    def test_where_the_models_are_is_printed_with_the_inputs_of_the_whole(
        self, sound: RunOutcome
    ) -> None:
        text = "\n".join(built_lines(sound.record, "run"))
        assert "convkit.load('run/models/ort')" in text
        assert "session(x=..., start=..., rates=..., biases=...)" in text
        assert "Built: ort, ort/encoder, ort/cell, ort/head\n  in run/models" in text

    def test_the_report_shows_the_whole_and_its_parts(self, sound: RunOutcome) -> None:
        text = (sound.folder / "report.html").read_text(encoding="utf-8")
        assert all(name in text for name in ("ort/encoder", "ort/cell", "ort/head", "join:ort"))

    @pytest.mark.thorough
    def test_the_whole_and_each_part_are_timed_beside_their_originals(
        self, sound: RunOutcome, path: Path, home: Path
    ) -> None:
        record = run_bench(
            sound.folder,
            load_recipe(path),
            Home(home),
            lambda stages: recorded_tools(recorded_resolutions(sound.folder, stages)),
            Bench(sizes=("typical",), seconds=0.01),
            SilentListener(),
        ).record
        names = [model.name for model in record.models]
        shares = [f"{model}/{part}" for part in ("encoder", "cell", "head")
                  for model in ("original", "ort")]  # fmt: skip
        assert names == ["original", "ort", *shares]
        assert [model.name for model in record.targets] == ["ort", *shares[1::2]]
        for model in record.models:
            figures = model.at("typical")
            assert figures is not None
            assert figures.calls > 0
            assert ("p50" in figures.ratios) == (not model.name.startswith("original"))
        joined = record.targets[0]
        assert joined.largest_error is not None
        assert joined.largest_error < 1e-4


@pytest.mark.thorough
def test_parts_in_float16_are_verified_as_one(home: Path, tmp_path: Path) -> None:
    half = {"runtime": "onnxruntime", "precision": "float16", "tolerance": {"max_abs": 0.05}}
    outcome = run(write(tmp_path, recipe() | {"targets": {"half": half}}), home)
    assert {name: each.status for name, each in targets(outcome).items()} == dict.fromkeys(
        ("half", "half/encoder", "half/cell", "half/head"), "verified"
    )
    cell = onnx.load(outcome.folder / "models" / "half" / "cell" / "model.onnx")
    nodes = [node for node in cell.graph.node if node.op_type == "Cast"]
    casts = [each.i for node in nodes for each in node.attribute]
    assert onnx.TensorProto.FLOAT16 in casts, "nothing is computed in float16"


@pytest.mark.slow
@pytest.mark.thorough
def test_parts_can_have_different_runtimes(home: Path, tmp_path: Path) -> None:
    content = recipe()
    content["parts"]["head"]["targets"] = {"ort": {"runtime": "openvino"}}
    outcome = run(write(tmp_path, content), home)
    assert targets(outcome)["ort"].status == "verified"
    assert targets(outcome)["ort"].runtime == "onnxruntime, openvino"
    given = feeds()
    made = convkit.load(outcome.folder / "models" / "ort")(given)
    assert made["y"] == pytest.approx(expected(tmp_path, given)["y"], abs=1e-4)
    assert "Load one:" in built_lines(outcome.record, "run")


@pytest.mark.thorough
def test_a_wrong_join_fails_every_target_and_names_the_wire(home: Path, tmp_path: Path) -> None:
    content = recipe()
    wired = content["join"][1]["calls"][0]["inputs"]
    wired["rate"], wired["bias"] = "biases", "rates"
    outcome = run(write(tmp_path, content), home)
    assert outcome.record.status == "failed"
    (finding,) = found(outcome, "C511")
    assert "'rate' and 'bias' of 'cell'" in finding.message
    assert "C511" in targets(outcome)["ort"].headline
    assert targets(outcome)["ort/cell"].status == "verified"
    (verification,) = targets(outcome)["ort"].verifications
    assert verification.status == "failed"
    loose = rejudge(outcome.folder, parse_tolerance(["max_abs=1e9"]))
    (verification,) = next(each for each in loose.targets if each.name == "ort").verifications
    assert verification.status == "unproven"  # zeros would do as well
    assert loose.status == "failed"  # C511 is about the recipe, whatever the tolerance


@pytest.mark.slow
@pytest.mark.thorough
def test_a_part_that_overflows_on_what_the_others_produce_is_named(
    home: Path, tmp_path: Path
) -> None:
    """On its own samples, the head's square fits float16; on the cell's values, it does not."""
    content = recipe()
    del content["original"]
    content["inputs"][1]["sample"] = {"uniform": [300, 400]}
    content["parts"]["encoder"]["targets"] = {"ort": {"runtime": "onnxruntime"}}
    content["parts"]["cell"]["targets"] = {"ort": {"runtime": "onnxruntime"}}
    content["targets"] = {
        "ort": {"runtime": "onnxruntime", "precision": "float16", "tolerance": {"cosine": 0.99}}
    }
    square = HEAD.replace(
        "y = Mul(state, two)",
        "square = Mul(state, state)\n    root = Sqrt(square)\n    y = Mul(root, two)",
    )
    content["join"][1]["calls"][0]["inputs"]["keys"] = "start"
    content["parts"]["encoder"]["outputs"] = [tensor("values", "batch", 3)]
    encoder = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "g (float[batch,3] x) => (float[batch,3] values) { values = Tanh(x) }"
    )
    outcome = run(write(tmp_path, content, head=square, encoder=encoder), home)
    assert targets(outcome)["ort/head"].status == "verified"
    assert targets(outcome)["ort"].status == "failed"
    (finding,) = found(outcome, "C514")
    assert "part 'head'" in finding.message
    assert finding.evidence["proven"] is True


@pytest.mark.thorough
def test_a_tolerance_that_the_originals_miss_blames_no_part(home: Path, tmp_path: Path) -> None:
    """The whole rounds otherwise than its parts, by less than a wrong join would."""
    content = recipe()
    content["targets"]["ort"]["tolerance"] = {"nrmse": 1e-5}
    outcome = run(write(tmp_path, content, whole=whole().replace("2.0", "2.001")), home)
    assert targets(outcome)["ort"].status == "failed"
    (finding,) = found(outcome, "C510")
    assert "no built part makes the difference" in finding.message


@pytest.mark.thorough
def test_goals_are_judged_on_the_joined_model_alone(
    sound: RunOutcome, path: Path, home: Path, tmp_path: Path
) -> None:
    content = recipe() | {"goals": {"size": "<= 0.001x original"}}
    wanted = load_recipe(write(tmp_path, content))
    record = run_bench(
        sound.folder,
        wanted,
        Home(home),
        lambda stages: recorded_tools(recorded_resolutions(sound.folder, stages)),
        Bench(sizes=("typical",), seconds=0.01),
        SilentListener(),
    ).record
    assert [(goal.target, goal.status) for goal in record.goals] == [("ort", "missed")]
    assert record.exit_code == 1
    assert [each.code for each in record.findings] == ["E401"]
