"""`convkit init` drafts labels that the model's configuration names."""

import pytest
from test_recipe_draft import BERT, drafted, model_folder

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import SurveyResult
from convkit.protocol.postprocessing_constants import LabelConstants

CLASSIFIER = {**BERT, "architectures": ["BertForSequenceClassification"]}


def labels_of(folder, tmp_path):
    loaded = drafted(str(folder), tmp_path / "recipe.yaml")
    (output,) = loaded.recipe.outputs
    return output.postprocess.labels if output.postprocess else None, loaded.text


def named(*names):
    return {str(place): name for place, name in enumerate(names)}


def test_named_labels_are_drafted_in_the_order_of_their_scores(tmp_path):
    # Neither the order of the file nor what YAML makes of `no` or `a: b` may change them.
    labels = {"2": "a: b", "0": "no", "1": "1.5"}
    folder = model_folder(tmp_path / "model", {**CLASSIFIER, "id2label": labels})
    drafted_labels, _ = labels_of(folder, tmp_path)
    assert drafted_labels.names == ("no", "1.5", "a: b")
    assert drafted_labels.activation == "softmax"
    assert drafted_labels.threshold is None


def test_several_labels_have_a_sigmoid_and_a_threshold(tmp_path):
    config = {
        **CLASSIFIER,
        "id2label": named("calm", "angry"),
        "problem_type": "multi_label_classification",
    }
    drafted_labels, _ = labels_of(model_folder(tmp_path / "model", config), tmp_path)
    assert (drafted_labels.activation, drafted_labels.threshold) == ("sigmoid", 0.5)


@pytest.mark.parametrize(
    "change",
    [
        {"id2label": named("LABEL_0", "LABEL_1")},
        {"id2label": {"0": "calm", "2": "angry"}},
        {"id2label": named("calm", " ")},
        {"id2label": named("calm", "angry"), "problem_type": "regression"},
        {"id2label": named("calm", "angry"), "architectures": ["BertModel"]},
    ],
)
def test_what_the_source_does_not_say_is_not_drafted(change, tmp_path):
    folder = model_folder(tmp_path / "model", CLASSIFIER | change)
    drafted_labels, text = labels_of(folder, tmp_path)
    assert drafted_labels is None
    assert "postprocess" not in text


def test_a_long_list_of_labels_is_left_to_a_file(tmp_path):
    names = named(*(f"kind {number}" for number in range(101)))
    folder = model_folder(tmp_path / "model", {**CLASSIFIER, "id2label": names})
    drafted_labels, text = labels_of(folder, tmp_path)
    assert drafted_labels is None
    assert "# postprocess: { labels: { file: labels.txt, activation: softmax } }" in text


def test_labels_of_a_files_metadata_are_drafted(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"")
    contract = Contract(
        (TensorSpec("x", "float32", (1, 4)),), (TensorSpec("y", "float32", (1, 2)),), ()
    )
    labels = {"y": LabelConstants(("no", "1.5"), "none", 0.5)}
    survey = SurveyResult(contract, {}, ran=True, labels=labels)
    recipe = drafted(str(tmp_path / "net.onnx"), tmp_path / "r.yaml", survey=survey).recipe
    (output,) = recipe.outputs
    assert output.postprocess.labels.constants() == labels["y"]
