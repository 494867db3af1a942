"""Maps tasks to transformers' automatic classes."""

from typing import Any

from convkit.protocol.spelling import suggestion
from convkit.worker.job_context import StageFailedError

# By task, the first class that knows the architecture: speech is recognized by encoders with CTC,
# and by encoders with a decoder.
AUTO_CLASSES: dict[str, tuple[str, ...]] = {
    "feature-extraction": ("AutoModel",),
    "fill-mask": ("AutoModelForMaskedLM",),
    "text-generation": ("AutoModelForCausalLM",),
    "text2text-generation": ("AutoModelForSeq2SeqLM",),
    "text-classification": ("AutoModelForSequenceClassification",),
    "token-classification": ("AutoModelForTokenClassification",),
    "question-answering": ("AutoModelForQuestionAnswering",),
    "multiple-choice": ("AutoModelForMultipleChoice",),
    "next-sentence-prediction": ("AutoModelForNextSentencePrediction",),
    "image-classification": ("AutoModelForImageClassification",),
    "image-segmentation": ("AutoModelForImageSegmentation",),
    "semantic-segmentation": ("AutoModelForSemanticSegmentation",),
    "object-detection": ("AutoModelForObjectDetection",),
    "depth-estimation": ("AutoModelForDepthEstimation",),
    "keypoint-detection": ("AutoModelForKeypointDetection",),
    "keypoint-matching": ("AutoModelForKeypointMatching",),
    "masked-im": ("AutoModelForMaskedImageModeling",),
    "zero-shot-image-classification": ("AutoModelForZeroShotImageClassification",),
    "audio-classification": ("AutoModelForAudioClassification",),
    "audio-frame-classification": ("AutoModelForAudioFrameClassification",),
    "audio-xvector": ("AutoModelForAudioXVector",),
    "automatic-speech-recognition": ("AutoModelForCTC", "AutoModelForSpeechSeq2Seq"),
    "image-text-to-text": ("AutoModelForImageTextToText",),
    "video-classification": ("AutoModelForVideoClassification",),
    "instance-segmentation": ("AutoModelForInstanceSegmentation",),
    "universal-segmentation": ("AutoModelForUniversalSegmentation",),
    "zero-shot-object-detection": ("AutoModelForZeroShotObjectDetection",),
    "document-question-answering": ("AutoModelForDocumentQuestionAnswering",),
    "visual-question-answering": ("AutoModelForVisualQuestionAnswering",),
    "table-question-answering": ("AutoModelForTableQuestionAnswering",),
    "image-to-image": ("AutoModelForImageToImage",),
    "mask-generation": ("AutoModelForMaskGeneration",),
    "text-to-audio": ("AutoModelForTextToWaveform",),
}
DEFAULT_TASK = "feature-extraction"


def auto_class(task: str | None, model_type: str | None) -> Any:  # noqa: ANN401 - one of transformers' untyped classes
    """Return the automatic class of a task (None: feature-extraction) for an architecture; raises
    StageFailedError for an unknown task.
    """
    import transformers

    names = AUTO_CLASSES.get(task or DEFAULT_TASK)
    if names is None:
        assert task is not None
        raise StageFailedError(
            f"model.task: {task!r} is not known{suggestion(task, AUTO_CLASSES)}. Known:"
            f" {', '.join(AUTO_CLASSES)}."
        )
    found = [each for name in names if (each := getattr(transformers, name, None)) is not None]
    if not found:
        raise StageFailedError(
            f"model.task: {task!r} needs {names[0]}, which transformers"
            f" {transformers.__version__} does not have; pin another release under"
            " tools.transformers."
        )
    return next((each for each in found if class_names(each, model_type)), found[0])


def class_names(auto_class: Any, model_type: str | None) -> tuple[str, ...]:  # noqa: ANN401 - as above
    """Return the classes that an automatic class loads an architecture as; empty if none."""
    mapping = getattr(auto_class, "_model_mapping", None)
    found = getattr(mapping, "_model_mapping", {}).get(model_type or "", ())
    return (found,) if isinstance(found, str) else tuple(found)
