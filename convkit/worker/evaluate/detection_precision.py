"""Mean average precision of detections, as COCO defines it, by pycocotools."""

import contextlib
import dataclasses
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convkit.protocol.messages import Evaluation
from convkit.protocol.postprocessing_constants import BoxConstants, Postprocessing
from convkit.worker.cases.case import Feeds
from convkit.worker.evaluate.row_reading import Predictions
from convkit.worker.job_context import UnfitDataError
from convkit.worker.pre_and_postprocessing.results import named, results

# The best detections of an image that count, as in COCO's main metric.
_MOST = 100
_NOTHING = -1  # the label of a row without a detection
_FORM = (
    'Write a list with {"box": [x1, y1, x2, y2], "label": "cat"} for each object: the corners in'
    " the boxes' coordinates, and a label of postprocess or its number."
)


@dataclasses.dataclass(frozen=True)
class Detector:
    """Scores the boxes that an output and its scores become by `constants`."""

    constants: Postprocessing

    @property
    def _boxes(self) -> BoxConstants:
        assert self.constants.boxes is not None  # the recipe says so
        return self.constants.boxes

    def condense(self, outputs: Feeds, feeds: Feeds, evaluation: Evaluation) -> np.ndarray:
        """Return the detections of each image, [images, 100, 6]: corners, score and label, the
        best first; rows without one have the label -1.

        Those below the threshold are among them, because average precision weighs all. Raises
        ValueError for NaN.
        """
        del feeds
        for name in (evaluation.output, self._boxes.scores):
            if np.isnan(outputs[name]).any():
                raise ValueError(f"{name} has NaN")
        every = dataclasses.replace(
            self.constants, boxes=dataclasses.replace(self._boxes, threshold=-math.inf)
        )
        images = results(evaluation.output, every, outputs)
        made = np.full((len(images), _MOST, 6), _NOTHING, np.float64)
        for image, found in enumerate(images):
            for row, each in enumerate(found[:_MOST]):
                assert each.box is not None
                made[image, row] = (*each.box, each.score, each.index)
        return made

    def decide(self, predictions: Predictions) -> Sequence[np.ndarray]:
        """Return the detections of each row, [detections, 6]."""
        (rows,) = predictions.values()
        return [row[row[:, 5] != _NOTHING] for row in rows]

    def shown(self, found: np.ndarray) -> str:
        """Return the labels above the threshold."""
        kept = found[found[:, 4] > self._boxes.threshold]
        return ", ".join(sorted(named(self._boxes.names, int(each)) for each in kept[:, 5]))

    def scores(self, decided: Sequence[Any], labels: Sequence[Any]) -> Callable[..., float]:
        """Return the mean average precision of any rows; matches boxes once. Raises UnfitDataError
        for labels that are not objects.
        """
        from pycocotools.cocoeval import COCOeval

        objects = [
            {"image_id": row, **each}
            for row, label in enumerate(labels)
            for each in _objects(label, row, self._boxes.names)
        ]
        found = [
            {
                "image_id": row,
                "category_id": int(each[5]),
                "score": float(each[4]),
                **_box(each[:4]),
            }
            for row, rows in enumerate(decided)
            for each in rows
        ]
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports its progress
            matching = COCOeval(_coco(objects, len(labels)), _coco(found, len(labels)), "bbox")
            matching.params.catIds = sorted({each["category_id"] for each in objects})
            matching.params.maxDets = [_MOST]
            matching.params.areaRng, matching.params.areaRngLbl = [[0.0, math.inf]], ["all"]
            matching.evaluate()
        matches = matching.evalImgs

        def score(rows: Sequence[int]) -> float:
            # One list for all labels, each with all images.
            starts = range(0, len(matches), len(labels))
            matching.evalImgs = [matches[start + row] for start in starts for row in rows]
            with contextlib.redirect_stdout(io.StringIO()):
                matching.accumulate()
            precision = matching.eval["precision"]
            known = precision[
                precision > -1
            ]  # labels that none of these rows has count for nothing
            return float(known.mean()) if known.size else math.nan

        return score


def _coco(annotations: Sequence[Mapping[str, Any]], images: int) -> Any:  # noqa: ANN401 - a COCO
    from pycocotools.coco import COCO

    made = COCO()
    labels = sorted({each["category_id"] for each in annotations})
    made.dataset = {
        "images": [{"id": row} for row in range(images)],
        "categories": [{"id": label} for label in labels],
        "annotations": [{"id": n, **each} for n, each in enumerate(annotations, 1)],
    }
    made.createIndex()
    return made


def _objects(
    label: Any,  # noqa: ANN401 - from the user's file
    row: int,
    names: Sequence[str],
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a row: {"box": [x1, y1, x2, y2], "label": a name or a number}."""
    try:
        for each in label:
            number = _number(each["label"], names)
            x, y, right, bottom = map(float, each["box"])
            if right < x or bottom < y:
                raise UnfitDataError(*_no_objects(label, row, "a box ends before it begins"))
            yield {"category_id": number, **_box((x, y, right, bottom))}
    except (KeyError, TypeError, ValueError) as error:
        raise UnfitDataError(*_no_objects(label, row, str(error))) from error


def _number(label: Any, names: Sequence[str]) -> int:  # noqa: ANN401 - as above
    if not isinstance(label, str):
        return int(label)
    if label not in names:
        raise ValueError(f"{label!r} is not a label of postprocess")
    return names.index(label)


def _no_objects(label: Any, row: int, why: str) -> tuple[str, str, str]:  # noqa: ANN401 - as above
    return ("evaluate.labels", f"row {row + 1}: {why}; found {label!r:.80}", _FORM)


def _box(corners: Sequence[float]) -> dict[str, Any]:
    x, y, right, bottom = map(float, corners)
    width, height = right - x, bottom - y
    return {"bbox": [x, y, width, height], "area": width * height, "iscrowd": 0}
