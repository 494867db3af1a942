"""Maps tasks to transformers' automatic classes."""

from typing import Any

from convkit.worker.context import StageFailedError
from convkit.worker.nearest import suggestion

AUTO_CLASSES: dict[str, str] = {
    "feature-extraction": "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "text-generation": "AutoModelForCausalLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "next-sentence-prediction": "AutoModelForNextSentencePrediction",
    "image-classification": "AutoModelForImageClassification",
    "image-segmentation": "AutoModelForImageSegmentation",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "object-detection": "AutoModelForObjectDetection",
    "depth-estimation": "AutoModelForDepthEstimation",
    "keypoint-detection": "AutoModelForKeypointDetection",
    "keypoint-matching": "AutoModelForKeypointMatching",
    "masked-im": "AutoModelForMaskedImageModeling",
    "zero-shot-image-classification": "AutoModelForZeroShotImageClassification",
    "audio-classification": "AutoModelForAudioClassification",
    "audio-frame-classification": "AutoModelForAudioFrameClassification",
    "audio-xvector": "AutoModelForAudioXVector",
    "automatic-speech-recognition": "AutoModelForCTC",
    "image-text-to-text": "AutoModelForImageTextToText",
}
DEFAULT_TASK = "feature-extraction"


def auto_class(task: str | None) -> Any:  # noqa: ANN401 - one of transformers' untyped classes
    """Return a task's automatic class (None: feature-extraction); raises StageFailedError for an
    unknown task.
    """
    import transformers

    name = AUTO_CLASSES.get(task or DEFAULT_TASK)
    if name is None:
        assert task is not None
        raise StageFailedError(
            f"model.task: {task!r} is not known{suggestion(task, AUTO_CLASSES)}. Known:"
            f" {', '.join(AUTO_CLASSES)}."
        )
    found = getattr(transformers, name, None)
    if found is None:
        raise StageFailedError(
            f"model.task: {task!r} needs {name}, which transformers {transformers.__version__} does"
            " not have; pin another release under tools.transformers."
        )
    return found
