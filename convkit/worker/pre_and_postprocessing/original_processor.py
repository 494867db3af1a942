"""The original's own image processor or feature extractor: transformers' or the user's function."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Processor
from convkit.worker.job_context import StageFailedError, UnfitDataError
from convkit.worker.original.loading.python_factory import named_callable
from convkit.worker.original.loading.transformers_folder import PROCESSOR_FILES

Kind = Literal["image", "audio"]
# Where the settings are in a processor_config.json.
_SECTIONS: dict[Kind, str] = {"image": "image_processor", "audio": "feature_extractor"}
_CLASSES = ("image_processor_type", "feature_extractor_type")


class OriginalProcessor:
    """Prepares one image or sound as the original does. `settings` are transformers'; empty for a
    function. `beside` is the file beside the model's weights. Raises UnfitDataError, naming the
    `place` in the recipe.
    """

    def __init__(
        self, asked: Processor, beside: Path | None, place: str, kind: Kind = "image"
    ) -> None:
        self._place = place
        self._kind: Kind = kind
        self._call: Callable[..., Any] | None = None
        self.settings: dict[str, Any] = {}
        if asked.kind == "function":
            assert asked.path is not None
            assert asked.name is not None
            self._call = imported(Path(asked.path), asked.name, f"{place}.processor.call")
            self.name = asked.name
            return
        self._processor = _open(self._written(asked, beside), place)
        self.settings = {key: _plain(value) for key, value in self._processor.to_dict().items()}
        self.name = type(self._processor).__name__

    def _written(self, asked: Processor, beside: Path | None) -> dict[str, Json]:
        if asked.kind == "config":
            return asked.settings
        file = Path(asked.path) if asked.path is not None else beside
        if file is None:
            problem = f"the model's folder has no {' or '.join(PROCESSOR_FILES)}"
            fix = (
                "Put the file beside the model's weights, or write processor: with file, config or"
                " call."
            )
            raise UnfitDataError(self._place, problem, fix)
        try:
            written = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problem = f"{file.name} is not JSON: {error}"
            fix = "Name the model's preprocessor_config.json, or write the settings as config:."
            raise UnfitDataError(f"{self._place}.processor", problem, fix) from error
        return dict(written.get(_SECTIONS[self._kind], written))

    def image(self, picture: np.ndarray, *, is_sized: bool = False) -> np.ndarray:
        """Return the original's input, without batch, for an RGB image, uint8 [rows, columns, 3].

        `is_sized`: it is resized and cropped already. A function is given the image all the same.
        """
        if self._call is not None:
            return self._called(picture)
        options = dict.fromkeys(("do_resize", "do_center_crop", "do_pad"), False)
        known = {key: value for key, value in options.items() if self.settings.get(key)}
        return self._prepared(
            lambda: self._processor(
                images=[picture], return_tensors="np", **(known if is_sized else {})
            )
        )

    def sound(self, samples: np.ndarray, rate: int) -> np.ndarray:
        """Return the original's input, without batch, for mono sound, float32 [samples]."""
        if self._call is not None:
            return self._called(samples, rate)
        return self._prepared(
            lambda: self._processor(samples, sampling_rate=rate, return_tensors="np")
        )

    def detections(
        self, scores: np.ndarray, boxes: np.ndarray, threshold: float
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return labels, scores and boxes (corners) of each image, as transformers' processor makes
        them of a detector's `logits` and `pred_boxes`; raises UnfitDataError.
        """
        import torch

        made = getattr(self._processor, "post_process_object_detection", None)
        if made is None:
            problem = f"{self.name} has no post_process_object_detection"
            fix = "Write processor: {call: file.py:function} with the original's own steps."
            raise UnfitDataError(self._place, problem, fix)
        given = SimpleNamespace(
            logits=torch.from_numpy(scores.astype(np.float32)),
            pred_boxes=torch.from_numpy(boxes.astype(np.float32)),
        )
        try:
            found = made(given, threshold=threshold)
        except Exception as error:
            problem = f"{self.name} raised {type(error).__name__}: {error}"
            fix = "Write processor: {call: file.py:function} with the original's own steps."
            raise UnfitDataError(self._place, problem, fix) from error
        keys = ("labels", "scores", "boxes")
        return [tuple(each[key].numpy() for key in keys) for each in found]

    def changed(self, settings: Mapping[str, Json]) -> "OriginalProcessor":
        """Return transformers' processor of the same class with other settings."""
        kind = next(key for key in _CLASSES if key in self.settings)
        written = {**self.settings, **settings, kind: self.settings[kind]}
        return OriginalProcessor(
            Processor("config", settings=written), None, self._place, self._kind
        )

    @property
    def is_function(self) -> bool:
        """True for the user's own function, whose settings are unknown."""
        return self._call is not None

    def _called(self, *arguments: object) -> np.ndarray:
        assert self._call is not None
        try:
            made = np.asarray(self._call(*arguments))
        except Exception as error:
            problem = f"{self.name} raised {type(error).__name__}: {error}"
            fix = "Correct the function, or the files that it receives."
            raise UnfitDataError(f"{self._place}.processor.call", problem, fix) from error
        if made.dtype.kind != "f":
            problem = f"{self.name} returned {made.dtype}"
            fix = "Return an array of floats: one input of the model, without the batch."
            raise UnfitDataError(f"{self._place}.processor.call", problem, fix)
        return made

    def _prepared(self, prepare: Callable[[], Mapping[str, Any]]) -> np.ndarray:
        try:
            made = prepare()
        except Exception as error:
            problem = f"{self.name} raised {type(error).__name__}: {error}"
            fix = "Correct the processor's settings, or the files that it receives."
            raise UnfitDataError(self._place, problem, fix) from error
        name = self._processor.model_input_names[0]
        found: np.ndarray = np.asarray(made[name])[0]
        return found


def imported(file: Path, name: str, key: str) -> Callable[..., object]:
    """Import the user's own processor; raises UnfitDataError."""
    try:
        return named_callable(file, name, key)
    except StageFailedError as error:
        fix = "Correct the file, or write file.py:function for another one."
        raise UnfitDataError(key, str(error).removeprefix(f"{key}: "), fix) from error


def _open(settings: Mapping[str, Json], place: str) -> Any:  # noqa: ANN401 - transformers has no useful type
    import transformers

    name = next((str(settings[key]) for key in _CLASSES if key in settings), None)
    if name is None:
        problem = "the processor's settings name no class"
        fix = f"Write {' or '.join(_CLASSES)} in them."
        raise UnfitDataError(f"{place}.processor", problem, fix)
    # The variants that need torchvision prepare images like the others.
    kind = getattr(transformers, name.removesuffix("Fast"), None)
    if kind is None or not hasattr(kind, "from_dict"):
        problem = f"transformers {transformers.__version__} has no processor {name!r}"
        fix = "Correct the class's name, or pin a release of transformers that has it under tools."
        raise UnfitDataError(f"{place}.processor", problem, fix)
    try:
        return kind.from_dict(dict(settings))
    except Exception as error:
        problem = f"{name} cannot be created from its settings: {type(error).__name__}: {error}"
        fix = "Correct the settings, or pin the release of transformers that wrote them."
        raise UnfitDataError(f"{place}.processor", problem, fix) from error


def _plain(value: object) -> object:
    """Return a setting as JSON writes it: enumerations as numbers, arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
