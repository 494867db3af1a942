"""What turns a model's outputs into labels, boxes or text: the constants that apps apply. Standard
library only.

They are part of a tensor's contract, so every built model carries them.
"""

import dataclasses
from typing import Literal

Activation = Literal["softmax", "sigmoid", "none"]
BoxFormat = Literal["corners", "center"]


@dataclasses.dataclass(frozen=True)
class LabelConstants:
    """How scores [..., labels] become labels: `activation` along the last dimension, then every
    label whose score exceeds `threshold`, or without one the label with the best score.

    `names` are the labels in the scores' order; empty: their numbers.
    """

    names: tuple[str, ...] = ()
    activation: Activation = "softmax"
    threshold: float | None = None


@dataclasses.dataclass(frozen=True)
class BoxConstants:
    """How boxes [..., rows, 4] and the output `scores` [..., rows, labels] become detections.

    In this order: `activation` along the scores' last dimension; with `no_object`, the last label
    is dropped, which means that there is nothing; of each row its best label, or with `several`
    every label, at most as many in all as there are rows; scores above `threshold`; with `overlap`,
    the best of those of one label that overlap by more than this (intersection over union). Boxes
    become corners (x1, y1, x2, y2) from `format`; center is center x, center y, width, height.
    """

    scores: str
    names: tuple[str, ...] = ()
    activation: Activation = "sigmoid"
    format: BoxFormat = "center"
    threshold: float = 0.5
    overlap: float | None = None
    several: bool = False
    no_object: bool = False


@dataclasses.dataclass(frozen=True)
class CtcConstants:
    """How scores [..., time, symbols] become text: the best symbol of each time, of equal neighbors
    one, without `blank`. `space` is the symbol that stands for a space.
    """

    symbols: tuple[str, ...]
    blank: int = 0
    space: str | None = None


@dataclasses.dataclass(frozen=True)
class Postprocessing:
    """How an app reads one output of a model. Exactly one kind of constants is given."""

    labels: LabelConstants | None = None
    boxes: BoxConstants | None = None
    text: CtcConstants | None = None

    @property
    def scores(self) -> str | None:
        """The output with the scores, if it is another one."""
        return self.boxes.scores if self.boxes is not None else None
