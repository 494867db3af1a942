"""Recognizes an axis that is fixed inside a graph by the sizes at which the runtime fails."""

from collections.abc import Mapping, Sequence

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.contract import names_with_axis
from convkit.protocol.findings.finding import Finding, Place
from convkit.protocol.findings.shared_remedies import symbolic_shapes


def fixed_axis_findings(
    cases: Sequence[CaseVerdict],
    recipe: Recipe,
    example: Mapping[str, int],
    stage_findings: Sequence[Finding] = (),
) -> list[Finding]:
    """Detect an axis that is fixed inside the graph: the runtime fails at every other size. It is
    proven by a case that fails and one that runs, of which all other sizes are the same.

    Axes that `stage_findings` name were tried by themselves: nothing is added to that.
    """
    named = {each.evidence.get("axis") for each in stage_findings if each.code == "C106"}
    failed = [case for case in cases if case.error is not None]
    ran = [case for case in cases if case.error is None]
    if not failed:
        return []
    findings = []
    for axis in recipe.axes:
        sizes_ran = {case.sizes.get(axis) for case in ran}
        sizes_failed = {case.sizes.get(axis) for case in failed}
        fixed = (
            next(iter(sizes_ran)) if len(sizes_ran) == 1 else example.get(axis) if not ran else None
        )
        if fixed is None or fixed in sizes_failed or axis in named:
            continue
        inputs = names_with_axis(((each.name, each.shape) for each in recipe.inputs), axis)
        findings.append(
            Finding(
                "C106",
                f"axis {axis!r} is fixed at {fixed} inside the graph: the model runs only at that"
                f" size (inputs {', '.join(map(repr, inputs))})",
                Place(tensor=inputs[0] if inputs else None, case=failed[0].case),
                {
                    "axis": axis,
                    "fixed": fixed,
                    "failed_at": sorted(size for size in sizes_failed if size is not None),
                    "proven": any(_differ_in(axis, one, other) for one in failed for other in ran),
                },
                symbolic_shapes(axis),
            )
        )
    return findings


def _differ_in(axis: str, one: CaseVerdict, other: CaseVerdict) -> bool:
    names = {*one.sizes, *other.sizes}
    return {name for name in names if one.sizes.get(name) != other.sizes.get(name)} == {axis}
