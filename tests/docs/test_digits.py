"""The example of the classifier: real digits, judged by accuracy, not by how close scores are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

from convkit.host.home import Home
from convkit.host.record.run_record import TargetReport
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.protocol.messages import EvaluationMetrics

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "digits"

pytestmark = pytest.mark.slow  # whole runs of a real network

Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def example(home: Home) -> RunOutcome:
    options = RunOptions(EXAMPLE / "digits.yaml", home, toolchain="host", track=False)
    return run_recipe(options)


def test_float32_and_int8_keep_the_accuracy(example: RunOutcome) -> None:
    assert example.record.exit_code == 0
    for target in example.record.targets:
        scored = _scored(target)
        assert scored.rows == 600
        assert scored.original == pytest.approx(0.98, abs=0.01)
        assert scored.high <= 0.01


@pytest.mark.thorough
def test_scores_that_agree_to_three_digits_fail_if_the_accuracy_drops(
    example: RunOutcome, home: Home, tmp_path: Path
) -> None:
    """One class is scored a little higher, beside a large part that all scores have in common."""

    def favor_one_class(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        bias = weights["head.bias"].copy()
        bias[8] += 8.0
        return {"head.bias": bias + 100.0}

    target = _run(example, home, tmp_path, favor_one_class, offset=100.0)
    assert min(_cosines(target)) > 0.999
    assert _scored(target).drop > 0.05
    assert target.status == "failed"
    assert [each.code for each in target.verifications[0].findings if each.is_error] == ["N701"]


@pytest.mark.thorough
def test_scores_that_are_off_pass_if_every_decision_stays(
    example: RunOutcome, home: Home, tmp_path: Path
) -> None:
    """All scores of an image are moved by the same amount, which changes no decision."""

    def move_all(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"head.bias": weights["head.bias"] + 3.0}

    target = _run(example, home, tmp_path, move_all)
    assert min(_cosines(target)) < 0.98
    assert _scored(target).drop == 0
    assert target.status == "verified"
    assert target.verifications[0].decided_by == "task metric"


def _run(
    example: RunOutcome, home: Home, folder: Path, change: Change, offset: float = 0.0
) -> TargetReport:
    """Run the example with a built file whose weights were changed, beside the network itself,
    whose scores all have `offset` in common.
    """
    model = onnx.load(example.folder / "models" / "ort-cpu" / "model.onnx")
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for name, value in change(weights).items():
        place = next(each for each in model.graph.initializer if each.name == name)
        place.CopyFrom(numpy_helper.from_array(value.astype(np.float32), name))
    onnx.save(model, folder / "changed.onnx")
    content = yaml.safe_load((EXAMPLE / "digits.yaml").read_text())
    for name in ("digits.py", "weights.npz", "rows.npz"):
        (folder / name).write_bytes((EXAMPLE / name).read_bytes())
    code = (folder / "digits.py").read_text()
    (folder / "digits.py").write_text(
        f"{code}\n\ndef build_moved():\n    model = build()\n"
        f"    model.head.bias.data += {offset}\n    return model\n"
    )
    content |= {"model": {"onnx": "changed.onnx"}, "targets": {"ort": {"runtime": "onnxruntime"}}}
    content |= {"original": {"factory": {"call": "digits.py:build_moved"}}, "name": "changed"}
    recipe = folder / "changed.yaml"
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    outcome = run_recipe(RunOptions(recipe, home, toolchain="host", track=False))
    return outcome.record.targets[0]


def _scored(target: TargetReport) -> EvaluationMetrics:
    found = target.verifications[0].evaluation
    assert found is not None
    return found


def _cosines(target: TargetReport) -> list[float]:
    return [
        output.metrics.cosine for case in target.verifications[0].cases for output in case.outputs
    ]
