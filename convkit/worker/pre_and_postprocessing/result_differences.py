"""Compares the results of the declared constants with the original's results for the same outputs,
and finds the constants with which both agree.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.postprocessing_constants import (
    BoxConstants,
    CtcConstants,
    LabelConstants,
    Postprocessing,
)
from convkit.worker.pre_and_postprocessing.drawn_outputs import Outputs
from convkit.worker.pre_and_postprocessing.results import AppResult, Results, named, paired, results

Constants = LabelConstants | BoxConstants | CtcConstants
Original = Callable[[Outputs], list[Results]]

# The overlaps from which detectors usually drop boxes.
_OVERLAPS = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
# Texts in which a blank symbol is looked for.
_MOST_SYMBOLS = 256
# Scores and boxes of float32, computed in another order, agree to this.
_CLOSE = 1e-3
_CODES = {
    "names": "C571",
    "threshold": "C572",
    "format": "C573",
    "activation": "C574",
    "overlap": "C575",
    "several": "C575",
    "no_object": "C575",
    "symbols": "C576",
    "blank": "C576",
    "space": "C576",
}


@dataclasses.dataclass(frozen=True)
class _Sample:
    """Outputs, and the original's results for them."""

    outputs: Outputs
    wanted: list[Results]


def result_findings(
    output: str,
    place: str,
    declared: Postprocessing,
    original: Original,
    outputs: Sequence[Outputs],
) -> list[Finding]:
    """Return C571 to C576 for each constant that must change to reproduce the original's results on
    all `outputs`, C570 if no change of one or two constants does.
    """
    samples = [_Sample(each, original(each)) for each in outputs]
    kind, constants = _kind(declared)
    comparison = _Comparison(output, samples)
    differing = comparison.differing(constants)
    if not differing:
        return []
    example = comparison.example(constants)
    evidence: dict[str, Json] = {"differing": differing, "rows": comparison.rows}
    found = f"{differing} of {comparison.rows} rows have a different result ({example})"
    for changes in _changes(constants):
        right = comparison.completed(dataclasses.replace(constants, **changes))
        if right is not None:
            return [
                _finding(output, f"{place}.{kind}", constants, right, key, found, evidence)
                for key in _changed(constants, right)
            ]
    message = (
        f"{output!r}: {found}, and no other constants that were tried reproduce the original's."
    )
    remedy = Remedy("Compare the constants with the original's code, one by one.")
    return [Finding("C570", message, Place(tensor=output), evidence, remedy)]


def _kind(declared: Postprocessing) -> tuple[str, Constants]:
    given = {"labels": declared.labels, "boxes": declared.boxes, "text": declared.text}
    return next((kind, each) for kind, each in given.items() if each is not None)


class _Comparison:
    """Results of constants on all samples, against the original's."""

    def __init__(self, output: str, samples: Sequence[_Sample]) -> None:
        self._output, self._samples = output, samples
        self.rows = sum(len(each.wanted) for each in samples)
        # An original with as many labels for every row ranks them, however low their scores.
        counts = {len(wanted) for each in samples for wanted in each.wanted}
        self._is_ranked = len(counts) == 1

    def differing(self, constants: Constants) -> int:
        """Return how many rows have another result."""
        return sum(not _same(found, wanted) for found, wanted in self._pairs(constants))

    def agrees(self, constants: Constants) -> bool:
        """Say whether every row has the original's result."""
        return all(_same(found, wanted) for found, wanted in self._pairs(constants))

    def example(self, constants: Constants) -> str:
        """Return the first result that differs, in both forms."""
        for found, wanted in self._pairs(constants):
            if not _same(found, wanted):
                return f"{_text(found)} here, {_text(wanted)} in the original"
        return ""

    def completed(self, constants: Constants) -> Constants | None:
        """Return the constants with the names and the threshold that reproduce the original's
        results; None if none do.
        """
        if isinstance(constants, CtcConstants):
            return constants if self.agrees(constants) else None
        right: Constants | None = constants
        if constants.threshold is not None:
            right = self._with_threshold(constants)
        right = self._with_names(right) if right is not None else None
        return right if right is not None and self.agrees(right) else None

    def _pairs(self, constants: Constants) -> Iterator[tuple[Results, Results]]:
        for sample in self._samples:
            found = results(self._output, _wrapped(constants), sample.outputs)
            # Rows that one side lacks are differences.
            pairs = itertools.zip_longest(found, sample.wanted, fillvalue=())
            best = isinstance(constants, LabelConstants) and constants.threshold is None
            only_first = best and self._is_ranked
            yield from ((one, _comparable(other, only_first=only_first)) for one, other in pairs)

    def _with_threshold(self, constants: LabelConstants | BoxConstants) -> Constants | None:
        """Return the constants with a threshold that keeps as many results as the original, in
        every row.
        """
        low, high = -math.inf, math.inf
        everything = dataclasses.replace(constants, threshold=-math.inf)
        for found, wanted in self._pairs(everything):
            kept, scores = len(wanted), [each.score or 0.0 for each in found]
            if kept > len(scores):
                return None
            high = min(high, scores[kept - 1]) if kept else high
            low = max(low, scores[kept]) if kept < len(scores) else low
        assert constants.threshold is not None
        if low <= constants.threshold < high:
            return constants
        threshold = _shortest(low, high)
        return (
            dataclasses.replace(constants, threshold=threshold) if threshold is not None else None
        )

    def _with_names(self, constants: Constants) -> Constants | None:
        """Return the constants with the original's name for each label that occurs."""
        assert not isinstance(constants, CtcConstants)
        own: dict[int, str] = {}
        for found, wanted in self._pairs(constants):
            for one, other in _matched(found, wanted):
                assert one.index is not None
                if own.setdefault(one.index, other.label) != other.label:
                    return None
        count = max([len(constants.names), *(index + 1 for index in own)])
        names = tuple(own.get(index, named(constants.names, index)) for index in range(count))
        if all(named(constants.names, index) == name for index, name in own.items()):
            return constants
        return dataclasses.replace(constants, names=names)


def _wrapped(constants: Constants) -> Postprocessing:
    match constants:
        case LabelConstants():
            return Postprocessing(labels=constants)
        case BoxConstants():
            return Postprocessing(boxes=constants)
        case CtcConstants():
            return Postprocessing(text=constants)


def _comparable(wanted: Results, *, only_first: bool) -> Results:
    """Return the original's results in the order of ours, by score."""
    if all(each.score is not None for each in wanted):
        wanted = tuple(sorted(wanted, key=lambda each: -(each.score or 0.0)))
    return wanted[:1] if only_first else wanted


def _matched(found: Results, wanted: Results) -> Iterator[tuple[AppResult, AppResult]]:
    if found and wanted and all(each.box is not None for each in (*found, *wanted)):
        for one, other in paired(found, wanted, by_label=False):
            yield found[one], wanted[other]
        return
    yield from zip(found, wanted, strict=False)


def _same(found: Results, wanted: Results) -> bool:
    if len(found) != len(wanted):
        return False
    if all(each.box is not None for each in (*found, *wanted)) and found:
        pairs = [(found[one], wanted[other]) for one, other in paired(found, wanted)]
        if len(pairs) != len(found):
            return False
    elif any(each.score is None for each in wanted):
        return sorted(each.label for each in found) == sorted(each.label for each in wanted)
    else:
        pairs = list(zip(found, wanted, strict=True))
    return all(
        one.label == other.label
        and _close((one.score,), (other.score,))
        and _close(one.box, other.box)
        for one, other in pairs
    )


def _close(one: Sequence[float | None] | None, other: Sequence[float | None] | None) -> bool:
    """Say whether numbers agree; those that the original does not return do."""
    if one is None or other is None or None in other:
        return True
    return bool(np.allclose(np.array(one, float), np.array(other, float), rtol=_CLOSE, atol=_CLOSE))


def _changes(constants: Constants) -> Iterator[dict[str, Any]]:
    """Return changes of no constant (names and thresholds are completed), of one, and of two."""
    options = _options(constants)
    single = [{key: value} for key, values in options.items() for value in values]
    yield {}
    yield from single
    for one, other in itertools.combinations(single, 2):
        if one.keys() != other.keys():
            yield {**one, **other}


def _options(constants: Constants) -> dict[str, list[Any]]:
    match constants:
        case LabelConstants():
            options: dict[str, list[Any]] = {
                "activation": ["softmax", "sigmoid", "none"],
                "threshold": [None, 0.5],
            }
        case BoxConstants():
            options = {
                "format": ["center", "corners"],
                "activation": ["softmax", "sigmoid", "none"],
                "several": [False, True],
                "no_object": [False, True],
                "overlap": [None, *_OVERLAPS],
            }
        case CtcConstants():
            count = min(len(constants.symbols), _MOST_SYMBOLS)
            options = {
                "blank": list(range(count)),
                "space": [None, "|", "▁", " "],
                "symbols": [
                    constants.symbols[1:] + constants.symbols[:1],
                    constants.symbols[-1:] + constants.symbols[:-1],
                ],
            }
    return {
        key: [value for value in values if value != getattr(constants, key)]
        for key, values in options.items()
    }


def _changed(declared: Constants, right: Constants) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(declared)
        if getattr(declared, field.name) != getattr(right, field.name)
    ]


def _shortest(low: float, high: float) -> float | None:
    """Return the number of the fewest digits that is at least `low` and below `high`."""
    if not low < high:
        return None
    if math.isinf(low) or math.isinf(high):
        return high - 1e-6 if math.isinf(low) and not math.isinf(high) else low
    for digits in range(1, 13):
        rounded = float(math.ceil(low * 10**digits) / 10**digits)
        if low <= rounded < high:
            return rounded
    return low


def _text(found: Results) -> str:
    if not found:
        return "nothing"
    shown = [
        each.label + (f" {each.score:.3g}" if each.score is not None else "") for each in found[:3]
    ]
    return ", ".join(map(repr, shown)) + (", ..." if len(found) > len(shown) else "")


def _finding(
    output: str,
    place: str,
    declared: Constants,
    right: Constants,
    key: str,
    found: str,
    evidence: Mapping[str, Json],
) -> Finding:
    before, after = getattr(declared, key), getattr(right, key)
    if key in ("names", "symbols"):
        what = _names_text(before, after)
        remedy = f"List the {key} in the original's order, in the recipe and in the app."
    else:
        what = f"{key} is {_value(before)}, the original has {_value(after)}"
        remedy = f"Write {key}: {_value(after)} in the recipe and use it in the app."
    return Finding(
        _CODES[key],
        f"{output!r}: {what}: {found}; with the original's, all results agree.",
        Place(tensor=output),
        {**evidence, "proven": True, "declared": _plain(before), "original": _plain(after)},
        Remedy(remedy, {f"{place}.{key}": _plain(after)}, proven=True),
    )


def _names_text(before: Sequence[str], after: Sequence[str]) -> str:
    if not before:
        return f"the original names its labels, such as {after[0]!r}; the app has numbers"
    differing = [
        (index, named(before, index), name)
        for index, name in enumerate(after)
        if named(before, index) != name
    ]
    for shift in (-1, 1):
        if all(
            0 <= index + shift < len(before) and before[index + shift] == name
            for index, name in enumerate(after)
            if 0 <= index + shift < len(before)
        ):
            return (
                f"the labels are shifted by one: number 0 is {after[0]!r} in the original,"
                f" {before[0]!r} in the app"
            )
    index, own, name = differing[0]
    order = "in a different order" if sorted(before) == sorted(after) else "different"
    return (
        f"the labels are {order}: number {index} is {name!r} in the original, {own!r} in the app"
        f" ({len(differing)} of {len(after)} differ)"
    )


def _plain(value: Json | tuple[str, ...]) -> Json:
    return list(value) if isinstance(value, tuple) else value


def _value(value: object) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
