"""What trials show, in the findings that they explain: owner, experiments, what is refused, and a
remedy. Pure.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from convkit.host.trials.fault_owner import Experiment, owner_of, result, same_file_right, shown
from convkit.host.trials.recipe_trials import written
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ReproduceResult

# Findings of a wrong graph, which a runtime may have misread, and of a graph that is not loaded.
BLAMES_GRAPH, REFUSED = "N402", "E205"
_OF_RUNTIME, _OF_FUSION = "N411", "N401"
# An operator without a kernel for its types, which is the runtime's, whatever else is tried.
NO_KERNEL = "T101"


def with_experiments(
    finding: Finding, experiments: Sequence[Experiment], named: str, *, is_valid: bool = False
) -> Finding:
    """Return a finding with its owner, what the experiments showed, and a remedy: the first change
    that was right, or none of those tried. `named` is the runtime with its release; `is_valid`: the
    graph is the user's own file, which ran as the reference.
    """
    owner = finding.evidence.get("owner") or owner_of(experiments)
    refused = finding.code == REFUSED and any(
        each.kind == "fewer_fusions" and each.outcome == "wrong" for each in experiments
    )
    if finding.code == NO_KERNEL or (owner is None and is_valid and refused):
        owner = "kernel"
    evidence: dict[str, Json] = {
        **finding.evidence,
        "owner": owner,
        "experiments": [each.record for each in experiments],
    }
    message = finding.message
    code = finding.code
    elsewhere = same_file_right(experiments)
    if elsewhere is not None:
        evidence["proven"] = True
    if code == BLAMES_GRAPH and elsewhere is not None:
        code = _OF_RUNTIME
        message = (
            f"{named} computes the graph wrong in case {finding.place.case!r}, at every"
            f" optimization level, and the graph is right: {shown(elsewhere)}"
        )
    elif elsewhere is not None:
        message += f". The same graph under {shown(elsewhere)}"
    return dataclasses.replace(
        finding, code=code, message=message, evidence=evidence, remedy=_remedy(finding, experiments)
    )


def at_part(finding: Finding, part: ReproduceResult) -> Finding:
    """Return the finding of a refused graph at the smallest part that is refused by itself."""
    if part.kind != "refused":
        return finding
    counted = Counter(part.operations)
    listed = ", ".join(f"{n} {name}" if n > 1 else name for name, n in counted.items())
    where = f" (node {part.place.node}" + (f", {part.place.source})" if part.place.source else ")")
    return dataclasses.replace(
        finding,
        message=f"{finding.message}; the smallest part that it refuses is {listed}{where}",
        place=dataclasses.replace(part.place, case=finding.place.case),
        evidence={**finding.evidence, "smallest_part": list(part.operations)},
    )


def of_failed_run(finding: Finding, named: str) -> Finding:
    """Return the cause of a failed run whose owner trials have shown."""
    owner = finding.evidence["owner"]
    code = _OF_FUSION if owner == "fusion" else _OF_RUNTIME
    what = "what its optimizations make of the graph" if owner == "fusion" else "the graph"
    return dataclasses.replace(
        finding,
        code=code,
        message=f"{named} fails to run {what}, which is right: {finding.message}",
        evidence=finding.evidence | {"proven": True},
    )


def _remedy(finding: Finding, experiments: Sequence[Experiment]) -> Remedy | None:
    tried = [each for each in experiments if each.change]
    right = [each for each in tried if each.outcome == "right"]
    given = finding.remedy
    if right:
        first = right[0]
        is_given = given is not None and given.change == first.change
        text = f"Set {_set(first)}: tried, {result(first)}."
        if is_given and given is not None:
            text = f"{given.text.rstrip('.')}: tried, {result(first)}."
        if right[1:]:
            others = "; ".join(shown(each) for each in right[1:])
            text += f" Also tried: {others}."
        return Remedy(text, first.change, proven=True)
    other = same_file_right(each for each in experiments if each.kind == "other_runtime")
    instead = ""
    if other is not None:
        instead = f"{other.what} computes the same graph right: serve the model with that. Or: "
    if not tried or all(each.outcome == "untried" for each in tried):
        if other is None or given is None or given.proven:
            return given
        return dataclasses.replace(given, text=f"{instead}{given.text}")
    failed = "; ".join(shown(each) for each in tried)
    if given is not None and any(each.kind == "other_precision" for each in tried):
        # It may be one step of several, which a repair takes.
        text = f"{given.text.rstrip('.')}: not enough by itself. Tried: {failed}."
        return dataclasses.replace(given, text=text, tried=True)
    untried = given is not None and all(each.change != given.change for each in tried)
    if given is not None and (given.proven or (given.change and untried)):
        text = f"{given.text} Nothing else that was tried repairs it ({failed})."
        return dataclasses.replace(given, text=text)
    return Remedy(f"Nothing tried repairs it ({failed}). {instead}{_advice(finding)}")


def _set(experiment: Experiment) -> str:
    return written(experiment.change) if experiment.kind != "other_opset" else experiment.what


def _advice(finding: Finding) -> str:
    """Return what is left to do, which nobody has tried."""
    if finding.code == REFUSED:
        return "Report it with the exported graph."
    if finding.code == NO_KERNEL:
        return "Compute in a type that the operator has a kernel for, which convkit has not tried."
    return "Write this part of the model with other operations, which convkit has not tried."
