"""Selects the reference's cases that show the ranges of a model in normal use."""

from collections.abc import Iterator
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.messages import ReferenceResult, is_usual
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_cases, read_tensors


def calibration_cases(reference: ReferenceResult) -> list[str]:
    """Return the ladder's cases with typical values; all cases if there are none."""
    ladder = [case.name for case in reference.cases if case.kind == "ladder"]
    return [name for name in ladder if is_usual(name)] or ladder


def calibration_feeds(reference: Path, contract: Contract) -> Iterator[Feeds]:
    """Yield the inputs of these cases as stored by the reference, memory-mapped."""
    for name in calibration_cases(read_cases(reference)):
        yield read_tensors(reference, name, "inputs", contract.inputs)
