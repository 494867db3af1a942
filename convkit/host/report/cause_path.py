"""The way from a failed target's cause to its first failing output, as a drawing. Pure."""

from convkit.host.findings.catalog import CATALOG
from convkit.host.record.headroom import worst_of_output
from convkit.host.record.run_record import TargetReport, Verification
from convkit.host.report.cause_path_drawing import PathStep, flow
from convkit.host.report.svg_elements import SvgFigure
from convkit.protocol.findings.finding import Finding

# Characters of a message that a box holds; of longer ones, it has the place only.
_SHORT = 160
# What `before` and `after` of a finding's evidence count, by its `error_in`.
_FALLS = {
    "rms": "The outputs' error falls from {} to {} of their rms.",
    "limit": "The outputs' error falls from {} to {} times its limit.",
    "elements": "Elements of the outputs that are not finite: {} before, {} then.",
}
# The same where an output has several causes, `others_corrected` of which are right in both.
_FALLS_BESIDE = (
    "Elements of the outputs that are not finite, with the other cause{} corrected: {} before, {}"
    " then."
)
_FALLS_IN_NO_UNIT = "The outputs' error falls from {} to {}."


def title_of(finding: Finding) -> str:
    """Return what a finding's code means; empty for a code that this convkit does not know."""
    return CATALOG[finding.code].title if finding.code in CATALOG else ""


def cause_path(target: TargetReport) -> SvgFigure | None:
    """Return the way from a failed target's cause to its first failing output; None if there is no
    cause or no output to show.
    """
    if target.status != "failed" or target.leading is None:
        return None
    finding = target.leading
    symptom = next(
        (
            step
            for verification in target.verifications
            if (step := _symptom(verification, finding.place.case))
        ),
        None,
    )
    if symptom is None or (finding.code in CATALOG and CATALOG[finding.code].is_symptom):
        return None
    steps = [PathStep("cause", _where(finding), _heading(finding))]
    steps += [
        PathStep("gap" if text.startswith("... ") else "step", text) for text in finding.chain
    ]
    steps.append(symptom)
    before, after = finding.evidence.get("before"), finding.evidence.get("after")
    if (
        finding.evidence.get("proven") is True
        and isinstance(before, int | float)
        and isinstance(after, int | float)
    ):
        steps.append(
            PathStep("proof", _fall(finding, before, after), "Proof: with this corrected in memory")
        )
    return flow(steps, f"From the cause to the symptom in {target.name}")


def _fall(finding: Finding, before: float, after: float) -> str:
    """Return what correcting the cause changes, in the unit of the finding's evidence."""
    others = finding.evidence.get("others_corrected")
    if isinstance(others, int) and others:
        return _FALLS_BESIDE.format("" if others == 1 else "s", f"{before:.5g}", f"{after:.5g}")
    unit = str(finding.evidence.get("error_in"))
    digits = ".5g" if unit == "elements" else ".2g"
    text = _FALLS.get(unit, _FALLS_IN_NO_UNIT)
    return text.format(f"{before:{digits}}", f"{after:{digits}}")


def _where(finding: Finding) -> str:
    """Return what happens where, in words: the message if it is short, and the place."""
    place = finding.place
    if len(finding.message) <= _SHORT:
        source = place.source if place.source and place.source not in finding.message else None
        return finding.message + (f", at {source}" if source else "")
    named = (
        ("", place.tensor),
        ("node ", place.node),
        ("in ", place.module),
        ("at ", place.source),
    )
    return ", ".join(f"{what}{name}" for what, name in named if name) or finding.message


def _heading(finding: Finding) -> str:
    return f"Cause: {finding.code} {title_of(finding)}".strip()


def _symptom(verification: Verification, cause_in: str | None) -> PathStep | None:
    """Return the first failing output of the case in which the cause was found, so that cause,
    symptom and proof are of the same one; of the first failing case, if that one passes.
    """
    failing = [case for case in verification.cases if not case.passed]
    case = next((case for case in failing if case.case == cause_in), next(iter(failing), None))
    if case is None:
        return None
    output = next((output for output in case.outputs if not output.passed), None)
    if output is None:
        text = f"Case {case.case} does not run"
        return PathStep("output", text, "Symptom")
    failure = output.failures[0] if output.failures else str(worst_of_output(case.case, output))
    return PathStep("output", f"{failure} in case {case.case}", f"Symptom: output {output.output}")
