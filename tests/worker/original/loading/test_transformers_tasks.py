"""A task stands for the class that knows the architecture."""

import json
from pathlib import Path

import pytest
import transformers

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.transformers_tasks import AUTO_CLASSES, auto_class
from convkit.worker.survey.torch_module.transformers_heads import likely_task


@pytest.mark.parametrize(
    ("task", "model_type", "expected"),
    [
        ("automatic-speech-recognition", "wav2vec2", "AutoModelForCTC"),
        ("automatic-speech-recognition", "whisper", "AutoModelForSpeechSeq2Seq"),
        ("automatic-speech-recognition", "of-somebody-else", "AutoModelForCTC"),
        ("automatic-speech-recognition", None, "AutoModelForCTC"),
        (None, "bert", "AutoModel"),
    ],
)
def test_the_first_class_that_knows_the_architecture_is_taken(
    task: str | None, model_type: str | None, expected: str
) -> None:
    assert auto_class(task, model_type).__name__ == expected


@pytest.mark.parametrize("task", AUTO_CLASSES)
@pytest.mark.sampled(1)
def test_every_class_is_one_of_transformers_and_knows_architectures(task: str) -> None:
    for name in AUTO_CLASSES[task]:
        assert getattr(transformers, name)._model_mapping.keys()


def test_an_unknown_task_is_named_with_the_nearest() -> None:
    with pytest.raises(StageFailedError, match="perhaps you meant 'fill-mask'"):
        auto_class("fill-masks", "bert")


@pytest.mark.parametrize(
    ("saved", "model_type", "task"),
    [
        ("WhisperForConditionalGeneration", "whisper", "automatic-speech-recognition"),
        ("Wav2Vec2ForCTC", "wav2vec2", "automatic-speech-recognition"),
        ("VideoMAEForVideoClassification", "videomae", "video-classification"),
        ("BertModel", "bert", None),
    ],
)
def test_the_task_of_a_checkpoint_is_that_of_its_class(
    tmp_path: Path, saved: str, model_type: str, task: str | None
) -> None:
    config = {"architectures": [saved], "model_type": model_type}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert likely_task(Source("path", path=str(tmp_path))) == task
