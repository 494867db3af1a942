"""Which explanations of a verify stage count for its verdict."""

import dataclasses
from collections.abc import Sequence

from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding

# Say what makes an output wrong. Without a wrong output they say nothing.
EXPLANATIONS = ("N401", "N402", "C510", "C514", "Q105")
_NO_PART_IS_WRONG = "C510"
_OPTIMIZATION = "N401"
_COSTS = "Q102"
# A warning for the stage, which is right on this machine; the cause, where the target fails.
_SATURATION = "Q105"


def relevant_findings(
    stage_findings: Sequence[Finding],
    cases: Sequence[CaseVerdict],
    reference_findings: Sequence[Finding],
) -> list[Finding]:
    """Drop findings that explain an error within the tolerance, however wide the tolerance is, and
    that no built part is to blame where the reference proves what is: an original that is joined.
    What explains a case explains no other one, and what quantization costs in a case counts if
    something is judged there: beyond the calibrated ranges any error is allowed.
    """
    failed = {case.case for case in cases if not case.passed}
    judged = failed | {case.case for case in cases if any(each.limits for each in case.outputs)}
    known = any(each.is_error and each.evidence.get("proven") for each in reference_findings)
    return [
        dataclasses.replace(finding, severity="error") if finding.code == _SATURATION else finding
        for finding in stage_findings
        if (
            finding.code not in EXPLANATIONS
            or (finding.place.case in failed if finding.code == _OPTIMIZATION else failed)
        )
        and not (known and finding.code == _NO_PART_IS_WRONG)
        and not (finding.code == _COSTS and judged and finding.place.case not in judged)
    ]
