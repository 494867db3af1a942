"""The original's own postprocessor: transformers' classes, and what users' functions return."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Processor
from convkit.protocol.postprocessing_constants import (
    BoxConstants,
    CtcConstants,
    LabelConstants,
    Postprocessing,
)
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.drawn_outputs import drawn_outputs
from convkit.worker.pre_and_postprocessing.original_results import ModelFiles, OriginalResults
from convkit.worker.pre_and_postprocessing.result_differences import result_findings

NAMES = {0: "cat", 1: "dog", 2: "eel"}
PLACE = "outputs.0.postprocess"
DETR = {"image_processor_type": "RTDetrImageProcessor"}


def spec(name: str, shape: tuple[int, ...], **kind: Any) -> TensorSpec:
    return TensorSpec(name, "float32", shape, postprocess=Postprocessing(**kind))


def model(**config: Any) -> ModelFiles:
    return ModelFiles(SimpleNamespace(**config), tokenizer=config.get("tokenizer"))


def compared(made: TensorSpec, asked: Processor, original: ModelFiles, **outputs: Any) -> list[str]:
    assert made.postprocess is not None
    own = OriginalResults(made, asked, original, PLACE)
    random = np.random.default_rng(0)
    all_outputs = [outputs, *drawn_outputs(made.name, made.postprocess, outputs, random)]
    found = result_findings(made.name, PLACE, made.postprocess, own, all_outputs)
    return [f"{each.code} {each.message}" for each in found]


def scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


class TestTheModelsConfiguration:
    def test_labels_are_those_of_id2label(self) -> None:
        original = model(id2label=NAMES)
        right = spec("y", (2, 3), labels=LabelConstants(("cat", "dog", "eel")))
        assert compared(right, Processor(), original, y=scores(2, 3)) == []
        wrong = spec("y", (2, 3), labels=LabelConstants(("dog", "cat", "eel")))
        [finding] = compared(wrong, Processor(), original, y=scores(2, 3))
        assert finding.startswith("C571 'y': the labels are in a different order")

    def test_a_model_of_several_labels_applies_sigmoid(self) -> None:
        kind = "multi_label_classification"
        original = model(id2label=NAMES, problem_type=kind)
        wrong = spec("y", (2, 3), labels=LabelConstants(tuple(NAMES.values())))
        found = compared(wrong, Processor(), original, y=scores(2, 3))
        assert [each[:4] for each in found] == ["C574", "C572"]

    def test_a_model_without_one_needs_a_function(self) -> None:
        made = spec("y", (2, 3), labels=LabelConstants())
        with pytest.raises(UnfitDataError, match="no id2label"):
            OriginalResults(made, Processor(), model(), PLACE)


class TestMetadata:
    @pytest.mark.parametrize("names", [("cat", "dog", "eel"), ("dog", "cat", "eel")])
    def test_a_detectors_labels_are_those_of_its_metadata(self, names: tuple[str, ...]) -> None:
        original = ModelFiles(class_names=("cat", "dog", "eel"))
        boxes = np.random.default_rng(0).uniform(0.2, 0.6, (2, 6, 4)).astype(np.float32)
        made = spec("boxes", (2, 6, 4), boxes=BoxConstants("logits", names))
        found = compared(made, Processor(), original, logits=scores(2, 6, 3), boxes=boxes)
        assert [each[:4] for each in found] == ([] if names[0] == "cat" else ["C571"])

    def test_a_function_decides_all_the_same(self, tmp_path: Path) -> None:
        made = spec("y", (1, 3), labels=LabelConstants(("cat", "dog", "eel")))
        (tmp_path / "post.py").write_text("def decode(outputs):\n    return ['emu']\n")
        asked = Processor("function", str(tmp_path / "post.py"), "decode")
        own = OriginalResults(made, asked, ModelFiles(class_names=("cat", "dog", "eel")), PLACE)
        assert own({"y": scores(1, 3)})[0][0].label == "emu"


class TestTransformersProcessors:
    def test_detections_are_those_of_the_image_processor(self) -> None:
        """RT-DETR's own rule: sigmoid, several labels for a box, centers and sizes."""
        own = BoxConstants("logits", tuple(NAMES.values()), threshold=0.6, several=True)
        boxes = np.random.default_rng(0).uniform(0.2, 0.6, (2, 6, 4)).astype(np.float32)
        given = {"logits": scores(2, 6, 3), "boxes": boxes}
        asked, original = Processor("config", settings=DETR), model(id2label=NAMES)
        assert compared(spec("boxes", (2, 6, 4), boxes=own), asked, original, **given) == []
        corners = BoxConstants("logits", own.names, "sigmoid", "corners", 0.6, several=True)
        [finding] = compared(spec("boxes", (2, 6, 4), boxes=corners), asked, original, **given)
        assert finding.startswith("C573 'boxes': format is corners, the original has center")

    def test_a_processor_without_detections_is_an_error(self) -> None:
        made = spec("boxes", (2, 6, 4), boxes=BoxConstants("logits"))
        asked = Processor("config", settings={"image_processor_type": "ViTImageProcessor"})
        own = OriginalResults(made, asked, model(), PLACE)
        with pytest.raises(UnfitDataError, match="has no post_process_object_detection"):
            own({"boxes": np.zeros((1, 6, 4)), "logits": np.zeros((1, 6, 3))})

    def test_texts_are_those_of_the_tokenizer(self, tmp_path: Path) -> None:
        from transformers import Wav2Vec2CTCTokenizer

        symbols = ("<pad>", "<s>", "</s>", "<unk>", "|", "A", "B", "C")
        file = tmp_path / "vocab.json"
        file.write_text(json.dumps({each: place for place, each in enumerate(symbols)}))
        original = model(tokenizer=lambda: Wav2Vec2CTCTokenizer(str(file)))
        spoken = np.full((1, 9, 8), -1, np.float32)
        spoken[0, np.arange(9), [5, 5, 0, 5, 4, 6, 6, 0, 7]] = 1  # A A - A | B B - C
        made = spec("y", (1, 9, 8), text=CtcConstants(symbols, blank=0, space="|"))
        own = OriginalResults(made, Processor(), original, PLACE)
        assert own({"y": spoken})[0][0].label == "AA BC"


def function(folder: Path, returns: str) -> OriginalResults:
    (folder / "post.py").write_text(f"def decode(outputs):\n    return {returns}\n")
    made = spec("y", (2, 3), labels=LabelConstants())
    return OriginalResults(
        made, Processor("function", str(folder / "post.py"), "decode"), ModelFiles(), PLACE
    )


@pytest.mark.parametrize(
    ("returns", "labels"),
    [
        ("['a', 'b']", [["a"], ["b"]]),
        ("[['a', 'b'], []]", [["a", "b"], []]),
        ("outputs['y'].argmax(-1)", [["1"]]),
        ("[('a', 0.5)]", [["a"]]),
        ("[[{'label': 3, 'score': 1, 'box': [0, 0, 1, 1]}]]", [["3"]]),
    ],
)
def test_functions_return_labels_with_or_without_scores_and_boxes(
    returns: str, labels: list[list[str]], tmp_path: Path
) -> None:
    found = function(tmp_path, returns)({"y": np.array([[0, 1, 0.5]])})
    assert [[each.label for each in row] for row in found] == labels


@pytest.mark.parametrize("returns", ["3", "[0.5]", "[{'score': 1}]", "[{'label': 1, 'box': [1]}]"])
def test_anything_else_is_an_error(returns: str, tmp_path: Path) -> None:
    with pytest.raises(UnfitDataError, match="decode returned") as caught:
        function(tmp_path, returns)({"y": np.zeros((1, 3))})
    remedy = caught.value.findings[0].remedy
    assert remedy is not None
    assert "(label, score)" in remedy.text
