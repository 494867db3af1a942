"""The sizes of a file's outputs that depend on the inputs' values, as axes from data."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import DataAxis, TensorSpec

# A few runs on drawn values say little about the largest count.
_FEWEST = 16
_MARGIN = 4

_SCORES = re.compile(r"score|conf|prob", re.IGNORECASE)
_BOXES = re.compile(r"box|det", re.IGNORECASE)

Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class CountedRows:
    """The axes from data, and the name of the one at an output's place.

    `unstable` are all outputs whose sizes depend on values, also those for which no axis can stand:
    their number of axes changes, or several of their sizes.
    """

    axes: tuple[DataAxis, ...]
    names: Mapping[tuple[str, int], str]
    unstable: frozenset[str]


def count_rows(
    outputs: Sequence[TensorSpec], alike: Sequence[Sequence[Shapes]], taken: Sequence[str]
) -> CountedRows:
    """Name the sizes that differ between runs at the same axis sizes, which are listed together;
    equal counts share an axis.

    `taken` are names of other axes.
    """
    counts: dict[tuple[int, ...], list[tuple[TensorSpec, int]]] = {}
    unstable = set()
    for spec in outputs:
        groups = [[run[spec.name] for run in runs] for runs in alike]
        if all(len(set(shapes)) < 2 for shapes in groups):
            continue
        unstable.add(spec.name)
        every = [shape for shapes in groups for shape in shapes]
        if len(set(map(len, every))) > 1:
            continue
        places = [
            place
            for place in range(len(every[0]))
            if any(len({shape[place] for shape in shapes}) > 1 for shapes in groups)
        ]
        if len(places) == 1:
            (place,) = places
            counts.setdefault(tuple(shape[place] for shape in every), []).append((spec, place))
    axes: list[DataAxis] = []
    names: dict[tuple[str, int], str] = {}
    for number, (seen, members) in enumerate(counts.items(), 1):
        name = _free("rows" if number == 1 else f"rows_{number}", taken)
        most = max(_FEWEST, _MARGIN * max(seen))
        axes.append(_axis(name, 1 << (most - 1).bit_length(), members))
        names |= {(spec.name, place): name for spec, place in members}
    return CountedRows(tuple(axes), names, frozenset(unstable))


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _axis(name: str, most: int, members: Sequence[tuple[TensorSpec, int]]) -> DataAxis:
    """Return an axis; outputs of fractions that are called boxes or scores are taken for that."""
    fractions = [(spec, place) for spec, place in members if spec.dtype.startswith("float")]
    boxes = (
        spec.name
        for spec, place in fractions
        if spec.shape[-1:] == (4,) and place != len(spec.shape) - 1 and _BOXES.search(spec.name)
    )
    scores = (
        spec.name
        for spec, place in fractions
        if _SCORES.search(spec.name) and set(spec.shape[:place] + spec.shape[place + 1 :]) <= {1}
    )
    return DataAxis(name, most, boxes=next(boxes, None), scores=next(scores, None))
