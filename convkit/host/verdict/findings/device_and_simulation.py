"""Compares a device's results with the CPU's, simulated if the precision is low."""

from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import limits_for
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.messages import CaseMetrics, VerifyResult
from convkit.protocol.metrics.limits import is_within


def simulation_findings(
    recipe: Recipe, target: Target, measured: VerifyResult, override: Tolerance | None
) -> list[Finding]:
    """Return N211 if device and CPU reach different verdicts on a case, else N212 with their
    difference.
    """
    if not measured.simulated:
        return []
    low = target.low_precision is not None
    second, beside = ("simulation", "in simulation") if low else ("CPU", "on the CPU")

    def passes(case: CaseMetrics) -> bool:
        return all(
            is_within(output, limits_for(recipe, target, output.output, override))
            for output in case.outputs
        )

    on_device = {case.case: passes(case) for case in measured.cases}
    simulated = {pair.simulation.case: passes(pair.simulation) for pair in measured.simulated}
    differing = [case for case, passed in simulated.items() if passed != on_device[case]]
    if differing:
        case = differing[0]
        verdicts = ("passes", "fails") if on_device[case] else ("fails", "passes")
        message = (
            f"case {case!r} {verdicts[0]} on the device and {verdicts[1]} {beside} "
            f"({len(differing)} of {len(simulated)} cases differ)"
        )
        return [Finding("N211", message, Place(case=case), {"cases": list(differing)})]
    errors = [output.max_abs for pair in measured.simulated for output in pair.agreement.outputs]
    message = (
        f"device and {second} reach the same verdict in every case ({len(simulated)}); largest"
        f" difference between their outputs {max(errors, default=0.0):.2g}"
    )
    return [Finding("N212", message, Place(), {"largest_difference": max(errors, default=0.0)})]
