"""A cause's way to its symptom, drawn from top to bottom as SVG. Pure; standard library only."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import Literal

from convkit.host.record.safe_text import visible
from convkit.host.report.svg_elements import Svg, SvgFigure, element, group, picture

_WIDTH = 360.0
_PADDING, _LINE, _ARROW = 9.0, 14.0, 20.0
_COLUMNS = 52  # characters of the drawing's monospaced font across a box


@dataclasses.dataclass(frozen=True)
class PathStep:
    """A box: the cause, a step on the way, steps left out, the output, or what the fix changes."""

    kind: Literal["cause", "step", "gap", "output", "proof"]
    text: str
    heading: str = ""


def flow(steps: Sequence[PathStep], title: str) -> SvgFigure:
    """Return the steps as boxes with arrows between them."""
    parts: list[Svg] = []
    y = 1.0
    for index, step in enumerate(steps):
        if index:
            parts.append(_arrow(y, dashed=step.kind in ("gap", "proof")))
            y += _ARROW
        box, height = _box(step, y)
        parts.append(box)
        y += height
    description = " Then: ".join(f"{step.heading} {step.text}".strip() for step in steps)
    return SvgFigure(picture(_WIDTH, y + 1, title, description, *parts), title)


def _box(step: PathStep, y: float) -> tuple[Svg, float]:
    lines = wrapped(step.text, _COLUMNS)
    headings = wrapped(step.heading, _COLUMNS - 2) if step.heading else []
    height = _LINE * (len(lines) + len(headings)) + 2 * _PADDING - 3
    shape = element("rect", x=1, y=y, width=_WIDTH - 2, height=height, rx=5)
    texts = [
        element("text", line, class_=kind, x=_PADDING + 2, y=y + _PADDING + 8 + _LINE * index)
        for index, (kind, line) in enumerate(
            [*(("heading", line) for line in headings), *(("text", line) for line in lines)]
        )
    ]
    return group([shape, *texts], class_=f"box {step.kind}"), height


def _arrow(y: float, *, dashed: bool) -> Svg:
    x, end = _WIDTH / 2, y + _ARROW - 2
    return group(
        [
            element("line", x1=x, x2=x, y1=y + 1, y2=end - 5),
            element("path", d=f"M{x - 4:g} {end - 6:g}h8l-4 6z"),
        ],
        class_="arrow dashed" if dashed else "arrow",
    )


def wrapped(text: str, columns: int) -> list[str]:
    """Return text in lines of at most `columns` columns; East Asian characters take two."""
    lines, line, used = [], "", 0
    for word in visible(text).split():
        for piece in _pieces(word, columns):
            width = _columns(piece)
            if line and used + 1 + width > columns:
                lines.append(line)
                line, used = piece, width
            else:
                line, used = (f"{line} {piece}", used + 1 + width) if line else (piece, width)
    return [*lines, line]


def _pieces(word: str, columns: int) -> list[str]:
    """Return a word cut where it is too long for a line."""
    pieces, piece, used = [], "", 0
    for character in word:
        width = _columns(character)
        if used + width > columns:
            pieces.append(piece)
            piece, used = "", 0
        piece, used = piece + character, used + width
    return [*pieces, piece]


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
