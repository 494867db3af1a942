"""Files with texts among their inputs and outputs, and with maps from class to probability, as
scikit-learn's converters write them: drafted, verified, and judged wrong if they are.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from small_classifiers import COLORS, FLOWERS, classifier
from small_runs import run

import convkit
from convkit.host.draft.recipe_draft import draft_recipe
from convkit.protocol.messages import SurveyRequest
from convkit.worker.job_context import Context
from convkit.worker.stages.survey_file import run as survey


def drafted(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    file = classifier(folder, text)
    found, _ = survey(SurveyRequest(str(file), 10.0), Context(folder))
    path.write_text(draft_recipe(str(file), destination=path, name="small", survey=found))
    return path


@pytest.mark.slow
def test_a_drafted_classifier_is_verified_and_returns_texts_and_a_table(tmp_path: Path) -> None:
    outcome = run(drafted(tmp_path, FLOWERS), tmp_path / "home")
    (target,) = outcome.record.targets
    assert target.status == "verified", target.headline
    judged = [each for case in target.verifications[0].cases for each in case.outputs]
    labels = [each.metrics.agreement for each in judged if each.output == "label"]
    assert labels
    assert set(labels) == {1.0}
    session = convkit.load(outcome.folder / "models" / "ort-cpu")
    answer = session(x=np.array([[3, 0], [0, 3]], np.float32))
    assert answer["label"].tolist() == ["rose", "lily"]
    assert answer["chances"].shape == (2, 2)


@pytest.mark.slow
@pytest.mark.thorough
def test_texts_among_the_inputs_are_drawn_and_verified(tmp_path: Path) -> None:
    outcome = run(drafted(tmp_path, COLORS), tmp_path / "home")
    (target,) = outcome.record.targets
    assert target.status == "verified", target.headline


@pytest.mark.slow
@pytest.mark.thorough
def test_labels_that_differ_from_the_original_s_fail(tmp_path: Path) -> None:
    path = drafted(tmp_path, FLOWERS)
    model = onnx.load(tmp_path / "model.onnx")
    labels = next(each for each in model.graph.node[0].attribute if "strings" in each.name)
    labels.strings[:] = [b"rose", b"tulip"]
    onnx.save(model, tmp_path / "wrong.onnx")
    content = yaml.safe_load(path.read_text())
    content["targets"] = {"theirs": {"runtime": "given", "file": "wrong.onnx"}}
    path.write_text(yaml.safe_dump(content))
    outcome = run(path, tmp_path / "home")
    (target,) = outcome.record.targets
    assert target.status == "failed"
    found = [each for each in target.verifications[0].findings if each.place.tensor == "label"]
    assert any("agreement" in finding.message for finding in found), target.verifications
