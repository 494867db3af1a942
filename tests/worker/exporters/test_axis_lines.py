"""A line that makes a number of one axis's size does not fix another axis."""

import dataclasses

import pytest
import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place
from convkit.worker.cases.decision_sizes import NO_DECISIONS
from convkit.worker.exporters.axis_lines import at_lines
from convkit.worker.original.probing.contract_probe import Probe

FIXED = Finding("C106", "fixed", Place(tensor="x"), {"axis": "batch", "fixed": 2})
LENGTH = Finding("C113", "restricted", Place(tensor="batch"), {"axis": "batch"})


@pytest.mark.parametrize("finding", [FIXED, LENGTH])
@pytest.mark.parametrize(("axes", "named"), [({"batch"}, True), ({"sequence"}, False)])
def test_only_a_line_of_the_same_axis_is_named(
    finding: Finding, axes: set[str], named: bool
) -> None:
    probe = Probe({"batch": 2, "sequence": 5}, (torch.ones(2),), None, ())
    numbers = {"model.py:3": axes}
    (found,) = at_lines([finding], Contract((), (), ()), probe, NO_DECISIONS, numbers)
    assert (found.place.source == "model.py:3") is named
    assert (found == finding) is not named


def test_the_first_line_of_the_axis_is_named() -> None:
    numbers = {"model.py:3": {"sequence"}, "model.py:7": {"sequence", "batch"}}
    probe = Probe({"batch": 2, "sequence": 5}, (torch.ones(2),), None, ())
    (found,) = at_lines([FIXED], Contract((), (), ()), probe, NO_DECISIONS, numbers)
    assert found.place == dataclasses.replace(FIXED.place, source="model.py:7")
