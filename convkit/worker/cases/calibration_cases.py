"""Selects the reference's cases that show the ranges of a model in normal use."""

from collections.abc import Iterator
from pathlib import Path

from convkit.protocol.contract import Contract, dimension_axes
from convkit.protocol.messages import ReferenceResult, is_usual
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_cases, read_tensors


def calibration_cases(reference: ReferenceResult) -> list[str]:
    """Return the ladder's cases with typical values; all cases if there are none."""
    ladder = [case.name for case in reference.cases if case.kind == "ladder"]
    return [name for name in ladder if is_usual(name)] or ladder


def calibration_feeds(reference: Path, contract: Contract) -> Iterator[Feeds]:
    """Yield the inputs of these cases as stored by the reference, memory-mapped.

    Calibrators keep all tensors of a call in memory, so a case comes in parts: of as few rows as
    the batch axis allows, if that is the first axis of each input that has it.
    """
    result = read_cases(reference)
    for name in calibration_cases(result):
        feeds = read_tensors(reference, name, "inputs", contract.inputs)
        yield from in_parts(feeds, contract, result.layout.rows)


def in_parts(feeds: Feeds, contract: Contract, rows: str | None) -> Iterator[Feeds]:
    """Yield inputs with `axis.min` rows each, and the rest with the last; whole if they have no
    batch axis, or have it elsewhere than first.
    """
    axis = next((each for each in contract.axes if each.name == rows), None)
    batched = {s.name for s in contract.inputs if rows in s.shape[:1]}
    elsewhere = any(
        rows in dimension_axes(dimension)
        for spec in contract.inputs
        for dimension in (spec.shape[1:] if spec.name in batched else spec.shape)
    )
    if axis is None or not batched or elsewhere:
        yield feeds
        return
    count = min(len(feeds[name]) for name in batched)
    step = max(axis.min, 1)
    starts = range(0, max(count - step, 0) + 1, step)
    for start in starts:
        stop = count if start == starts[-1] else start + step
        yield {n: each[start:stop] if n in batched else each for n, each in feeds.items()}
