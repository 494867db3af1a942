"""What a run's record says about each stage: one mistake is not recorded as two."""

import dataclasses

import pytest
from records import build_record
from small_recipe import recipe

from convkit.host.run.run_execution import _reported
from convkit.host.stages.stage_runner import Settled
from convkit.protocol.findings.finding import Finding

REFUSED = Finding("E204", "the original model refuses case 'smallest'")
WRONG = Finding("E410", "the model refuses the declared inputs")


def settled(identifier: str, kind: str, *findings: Finding) -> Settled:
    first = build_record().stages[0]
    report = dataclasses.replace(first, id=identifier, kind=kind, findings=findings)
    return Settled(report, log="what it wrote")


@pytest.mark.parametrize("part", ["", "/encoder"])
def test_a_refusal_is_recorded_with_its_cause_alone(part: str) -> None:
    stages = {
        f"export{part}": settled(f"export{part}", "export", WRONG),
        f"reference{part}": settled(f"reference{part}", "reference", REFUSED),
        "reference/other": settled("reference/other", "reference", REFUSED),
    }
    reported = {stage: _reported(stages, stage, recipe()) for stage in stages}
    assert reported[f"export{part}"].findings == (WRONG,)
    assert reported[f"reference{part}"].findings == ()
    assert reported[f"reference{part}"].log is not None
    # Another part's failure has another cause.
    assert reported["reference/other"].findings == (REFUSED,)
