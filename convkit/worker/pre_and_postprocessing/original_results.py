"""The original's own postprocessor: transformers' or the user's function."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Processor
from convkit.protocol.postprocessing_constants import BoxConstants, LabelConstants, Postprocessing
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor, imported
from convkit.worker.pre_and_postprocessing.results import AppResult, Results, named, results

# A function returns one of these for each row of the batch.
_FORMS = "a label or text, (label, score), or {label, score, box} for each row, or a list of them"


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """What is known of a model beside its weights, as far as there is any: transformers'
    configuration, the file with the settings of its image processor, what loads its tokenizer; and
    the names of its classes in an ONNX file's metadata.
    """

    config: Any = None
    processor: Path | None = None
    tokenizer: Callable[[], Any] | None = None
    class_names: tuple[str, ...] = ()


class OriginalResults:
    """Makes labels, detections or text of one output, as the original does: by the user's function,
    or by the `files` beside the model. Raises UnfitDataError, naming the `place` in the recipe.
    """

    def __init__(self, spec: TensorSpec, asked: Processor, files: ModelFiles, place: str) -> None:
        assert spec.postprocess is not None
        self._spec, self._place, self._constants = spec, place, spec.postprocess
        self._names: tuple[str, ...] = ()
        if asked.kind == "function":
            assert asked.path is not None
            assert asked.name is not None
            self.name = asked.name
            self._call = self._function(asked.path, asked.name)
            return
        if files.class_names and asked.kind == "model" and spec.postprocess.text is None:
            self.name = "the model's metadata"
            self._call = self._by_metadata(files.class_names)
        elif spec.postprocess.labels is not None:
            self.name, self._call = "the model's id2label", self._by_config(files.config)
        elif spec.postprocess.boxes is not None:
            processor = OriginalProcessor(asked, files.processor, place)
            self._names = _names_of(files.config)
            self.name = f"{processor.name}.post_process_object_detection"
            self._call = self._by_processor(processor)
        else:
            if files.tokenizer is None:
                raise self._nothing("the model has no tokenizer beside it")
            self.name = "the model's tokenizer"
            self._call = self._by_tokenizer(files.tokenizer())

    def __call__(self, outputs: Mapping[str, np.ndarray]) -> list[Results]:
        """Return the original's results for outputs, one for each row of the batch."""
        return self._call(outputs)

    def _function(self, path: str, name: str) -> Callable[..., list[Results]]:
        key = f"{self._place}.processor.call"
        function = imported(Path(path), name, key)

        def call(outputs: Mapping[str, np.ndarray]) -> list[Results]:
            try:
                made: Any = function({each: np.array(array) for each, array in outputs.items()})
            except Exception as error:
                problem = f"{name} raised {type(error).__name__}: {error}"
                fix = "Correct the function: it gets the original's outputs as arrays, by name."
                raise UnfitDataError(key, problem, fix) from error
            try:
                return [_row(each) for each in made]
            except (TypeError, ValueError, KeyError, IndexError) as error:
                problem = f"{name} returned {type(made).__name__}: {error}"
                raise UnfitDataError(key, problem, f"Return a list of {_FORMS}.") from error

        return call

    def _by_config(self, config: Any) -> Callable[..., list[Results]]:  # noqa: ANN401
        names = _names_of(config)
        if not names:
            raise self._nothing("the model's configuration has no id2label")
        declared = self._constants.labels or LabelConstants()
        own = dataclasses.replace(declared, names=names)
        kind = getattr(config, "problem_type", None)
        if kind == "single_label_classification":
            own = dataclasses.replace(own, activation="softmax", threshold=None)
        elif kind == "multi_label_classification":
            threshold = 0.5 if declared.threshold is None else declared.threshold
            own = dataclasses.replace(own, activation="sigmoid", threshold=threshold)
        constants = Postprocessing(labels=own)
        return lambda outputs: results(self._spec.name, constants, outputs)

    def _by_metadata(self, names: tuple[str, ...]) -> Callable[..., list[Results]]:
        """The metadata of a file names classes and says nothing else: the rest is as declared."""
        declared = self._constants
        own = Postprocessing(
            labels=declared.labels and dataclasses.replace(declared.labels, names=names),
            boxes=declared.boxes and dataclasses.replace(declared.boxes, names=names),
        )
        return lambda outputs: results(self._spec.name, own, outputs)

    def _by_processor(self, processor: OriginalProcessor) -> Callable[..., list[Results]]:
        constants = self._constants.boxes
        assert constants is not None

        def call(outputs: Mapping[str, np.ndarray]) -> list[Results]:
            boxes, scores = outputs[self._spec.name], outputs[constants.scores]
            found = processor.detections(scores, boxes, constants.threshold)
            return [self._detected(constants, *each) for each in found]

        return call

    def _detected(
        self, constants: BoxConstants, labels: np.ndarray, scores: np.ndarray, boxes: np.ndarray
    ) -> Results:
        names = self._names or constants.names
        return tuple(
            AppResult(named(names, int(label)), float(score), tuple(map(float, box)), int(label))
            for label, score, box in zip(labels, scores, boxes, strict=True)
        )

    def _by_tokenizer(self, tokenizer: Any) -> Callable[..., list[Results]]:  # noqa: ANN401
        def call(outputs: Mapping[str, np.ndarray]) -> list[Results]:
            scores = outputs[self._spec.name]
            best = scores.reshape(-1, *scores.shape[-2:]).argmax(-1)
            return [(AppResult(text),) for text in tokenizer.batch_decode(best)]

        return call

    def _nothing(self, problem: str) -> UnfitDataError:
        fix = (
            "Write processor: {call: file.py:function}, a function that turns the original's "
            "outputs into results."
        )
        return UnfitDataError(self._place, problem, fix, tensor=self._spec.name)


def _names_of(config: Any) -> tuple[str, ...]:  # noqa: ANN401 - transformers' configuration
    known = getattr(config, "id2label", None) or {}
    return tuple(str(known[each]) for each in sorted(known))


def _row(made: Any) -> Results:  # noqa: ANN401 - whatever the user's function returned
    several = made if isinstance(made, list) else [made]
    return tuple(map(_result, several))


def _result(made: Any) -> AppResult:  # noqa: ANN401
    if isinstance(made, Mapping):
        box, score = made.get("box"), made.get("score")
        return AppResult(
            _label(made["label"]),
            None if score is None else float(score),
            None if box is None else _box(box),
        )
    if isinstance(made, tuple):
        label, score = made
        return AppResult(_label(label), float(score))
    return AppResult(_label(made))


def _label(made: Any) -> str:  # noqa: ANN401
    if isinstance(made, str):
        return made
    if isinstance(made, bool) or int(made) != made:
        raise ValueError(f"{made!r} is not a label")
    return str(int(made))


def _box(made: Iterable[float]) -> tuple[float, ...]:
    box = tuple(float(each) for each in made)
    if len(box) != 4:
        raise ValueError(f"a box has four numbers, found {len(box)}")
    return box
