"""Selects the reference's cases that show the ranges of a model in normal use."""

from collections.abc import Iterator
from pathlib import Path

from convkit.cases.case import Feeds
from convkit.cases.files import read_cases, read_tensors
from convkit.tensors import Contract
from convkit.worker.protocol import ReferenceResult

# Extremes of every legal range, values next to those the model compares with, and rows without a
# live position or with holes: legal inputs, but not typical.
_UNUSUAL = frozenset({"extreme", "values", "masked-row", "mask-patterns", "texts:unusual"})


def is_usual(case: str) -> bool:
    """Return True if a case of the ladder has typical values."""
    return case not in _UNUSUAL


def calibration_cases(reference: ReferenceResult) -> list[str]:
    """Return the ladder's cases with typical values; all cases if there are none."""
    ladder = [case.name for case in reference.cases if case.kind == "ladder"]
    return [name for name in ladder if is_usual(name)] or ladder


def calibration_feeds(reference: Path, contract: Contract) -> Iterator[Feeds]:
    """Yield the inputs of these cases as stored by the reference, memory-mapped."""
    for name in calibration_cases(read_cases(reference)):
        yield read_tensors(reference, name, "inputs", contract.inputs)
