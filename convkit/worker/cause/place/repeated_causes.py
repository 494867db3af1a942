"""Several causes of one difference: ranked, and merged if they are equal."""

import dataclasses
import math
import re

from convkit.worker.cause.search_types.search_results import Cause

_SHOWN = 3


def ranked(causes: list[Cause], error: float) -> tuple[Cause, ...]:
    """Return causes, proven ones first, by the part of the outputs' error that each explains.

    `error` is the outputs' before any correction; each cause's `before` and `after` are those
    around its own, in the order in which they were made.
    """

    def explained(cause: Cause) -> float:
        if math.isinf(cause.before):
            return 1.0 if math.isfinite(cause.after) else 0.0
        return min(1.0, max(0.0, cause.before - cause.after) / error) if error > 0 else 0.0

    merged = [dataclasses.replace(each, explains=explained(each)) for each in _merged(causes)]
    return tuple(sorted(merged, key=lambda each: (each.kind == "unproven", -each.share)))


def around(place: Cause, within: list[Cause]) -> list[Cause]:
    """Return a proven place, and what was found within it and does not explain all of it."""
    return [place, *(dataclasses.replace(each, kind="unproven") for each in within)]


def _merged(causes: list[Cause]) -> list[Cause]:
    """Merge equal changes in repeated modules, listing the other places."""
    groups: dict[tuple[object, ...], list[Cause]] = {}
    for place, cause in enumerate(causes):
        alike = (cause.kind, cause.operation, cause.text.partition(" ")[0], _pattern(cause.module))
        alone = cause.operation is None or not re.search(r"\d", cause.module)
        groups.setdefault((place,) if alone else alike, []).append(cause)
    return [_merged_cause(group) for group in groups.values()]


def _merged_cause(group: list[Cause]) -> Cause:
    if len(group) == 1:
        return group[0]
    others = list(dict.fromkeys(cause.module for cause in group[1:]))
    shown = ", ".join(others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
    text = f"{group[0].text}; likewise in {shown}"
    after = min(cause.after for cause in group)
    return dataclasses.replace(group[0], text=text, after=after)


def _pattern(module: str) -> str:
    return re.sub(r"\d+", "*", module)
