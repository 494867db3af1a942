"""Selects the reference's cases that show the ranges of a model in normal use."""

from collections.abc import Iterator
from pathlib import Path

from convkit.cases.case import Feeds
from convkit.cases.files import read_cases, read_tensors
from convkit.tensors import Contract
from convkit.worker.protocol import ReferenceResult, is_usual


def calibration_cases(reference: ReferenceResult) -> list[str]:
    """Return the ladder's cases with typical values; all cases if there are none."""
    ladder = [case.name for case in reference.cases if case.kind == "ladder"]
    return [name for name in ladder if is_usual(name)] or ladder


def calibration_feeds(reference: Path, contract: Contract) -> Iterator[Feeds]:
    """Yield the inputs of these cases as stored by the reference, memory-mapped."""
    for name in calibration_cases(read_cases(reference)):
        yield read_tensors(reference, name, "inputs", contract.inputs)
