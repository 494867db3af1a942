"""Ranks proven causes before possible ones."""

import dataclasses
from collections.abc import Sequence

from convkit.host.findings.catalog import is_unproven
from convkit.host.findings.consequences import following
from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.messages import is_usual

# Findings that two tensors are swapped: the probes prove it and suggest a recipe change.
_EXCHANGES = ("C108", "C109", "C110", "C208")
# Of these, a search may know the recipe's change, which puts all tensors right at once. A probe
# names two, and both orders.
_SWAPPED = ("C110", "C208")
# Findings whose cause a search cannot improve on, only locate: a branch or a value traced with an
# example, and a random model.
_KNOWN_BETTER = ("E208", "E302", "N303", "N510", *_EXCHANGES)
# An input without an effect follows from a wrong weight, such as one of zeros, and from a step that
# is missing, superfluous or another one, such as an addition: that says where the input is lost. A
# constant or another value in its place does not: the input itself says that better.
_DEAD_INPUT = "C108"
_SAYS_WHERE = (
    *("weight", "exchanged", "checkpoint", "quantized"),
    *("missing", "extra", "operator", "attribute", "operands", "order"),
)
# An error at padding alone: what causes it says more, and the place alone does not.
_AT_PADDING = "N506"
# Dependence on padding or the batch: more informative than a place without a known cause.
_DEPENDS = ("N301", "N302")
_PLACE_ONLY = "N408"
# A limit below what the type can hold, and units in the last place that rounding may make.
_TOO_FINE, _FEW = "N502", 8
# Where most of quantization's error comes from.
_QUANTIZED = "Q102"
# Guesses, which a proven cause makes pointless.
_WITHOUT_PROOF = ("N402", "E302", "C106")
# What follows from a cause that is known: it has nothing to correct by itself.
_CONSEQUENCES = ("N101", "N102", "N210", "N304", "E206")
# Families of causes that lie in the precision.
_PRECISION = ("N2", "Q")
# Owners of faults that may be there for some sizes only: a row is then wrong beside others.
_OF_RUNTIME = ("kernel", "fusion", "runtime")
# What to do about a difference that nothing explains.
FIND_THE_CAUSE = Remedy(
    "Find the cause, or relax the tolerance if you can justify it.", refers=True
)


def without_guesses(findings: Sequence[Finding], recipe: Recipe) -> list[Finding]:
    """Drop possible causes if a cause is proven, and remedies that cannot help."""
    proven = [finding for finding in findings if _is_proven(finding)]
    renamed = {
        finding.code
        for finding in proven
        if finding.code in _SWAPPED and finding.remedy and finding.remedy.change
    }
    kept = [
        finding
        for finding in findings
        if not (proven and finding.code in _WITHOUT_PROOF and not _is_proven(finding))
        and (finding.code not in renamed or (finding.remedy and finding.remedy.change))
    ]
    if recipe.model.onnx is None:
        return kept
    remedy = Remedy("Correct the file at its source: convkit does not edit its nodes.")
    return [
        dataclasses.replace(finding, remedy=remedy) if finding.code == "N402" else finding
        for finding in kept
    ]


def _beside_proof(finding: Finding, findings: Sequence[Finding]) -> int:
    """Return a finding's rank if a search has proven a cause; otherwise 0 for all."""
    proven = [each for each in findings if _is_proven(each)]
    if not proven:
        return 0
    if finding.code == _DEAD_INPUT and any(
        each.evidence.get("kind") in _SAYS_WHERE for each in proven
    ):
        return -2
    # Inputs without an effect are a symptom where the outputs are constant.
    if finding.code in _KNOWN_BETTER and not finding.evidence.get("constant_outputs"):
        return -4
    if finding.code == _AT_PADDING:
        others = [each for each in proven if each.code != _AT_PADDING]
        return -2 if any(each.code != _PLACE_ONLY for each in others) else -4
    places = all(each.code == _PLACE_ONLY and not _is_of_runtime(each) for each in proven)
    if finding.code in _DEPENDS and places:
        return -2
    return 0 if not _is_proven(finding) else -1 if finding.code == _PLACE_ONLY else -3


def _is_of_runtime(finding: Finding) -> bool:
    return finding.evidence.get("owner") in _OF_RUNTIME


def _is_proven(finding: Finding) -> bool:
    """Return True if a search has shown that correcting this removes the difference."""
    return finding.evidence.get("proven") is True


def _with_origin(findings: Sequence[Finding]) -> list[Finding]:
    """Add to the first difference from which modules most of quantization's error comes."""
    found = list(findings)
    costs = next((each for each in findings if each.code == _QUANTIZED), None)
    if costs is None or not found or found[0].code != "N101":
        return found
    first, origin = found[0], costs.evidence.get("origin")
    if isinstance(origin, str) and first.place.module is None:
        text = origin.replace("of that", "of quantization's error", 1)
        place = dataclasses.replace(first.place, module=costs.place.module)
        remedy = first.remedy
        if remedy is not None and remedy.change and costs.remedy and costs.remedy.change:
            what = f"Keep the modules that {_QUANTIZED} names in float32, or let convkit find them."
            remedy = dataclasses.replace(remedy, text=what)
            if costs.remedy.proven:
                remedy = costs.remedy
        found[0] = dataclasses.replace(
            first, message=f"{first.message}; {text}", place=place, remedy=remedy
        )
    return found


def _with_fine_limits(findings: Sequence[Finding]) -> list[Finding]:
    """Refer from a difference of a few units in the last place to the limit that is finer than
    that.
    """
    fine = {each.place.tensor: each for each in findings if each.code == _TOO_FINE}
    changed = []
    for finding in findings:
        limit = fine.get(finding.place.tensor)
        error, unit = finding.evidence.get("max_abs"), limit.evidence.get("unit") if limit else None
        small = isinstance(error, float) and isinstance(unit, float) and error <= _FEW * unit
        if finding.code == "N101" and small and limit is not None and limit.remedy is not None:
            remedy = Remedy(f"The limit is finer than the type: {_lower(limit.remedy.text)}")
            changed.append(dataclasses.replace(finding, remedy=remedy))
        else:
            changed.append(finding)
    return changed


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _placed(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Add the place that a search found: where the outputs become wrong, if the cause is not known,
    or what the graph reads in place of an input without an effect.
    """
    if finding.code in _DEPENDS:
        places, link = (each for each in findings if each.code == _PLACE_ONLY), "it begins where "
    else:
        name, link = finding.place.tensor, ""
        places = (each for each in findings if name and each.evidence.get("stands_for") == name)
    place = next((each for each in places if _is_proven(each)), None)
    if place is None or finding.place.node is not None or place.place.node is None:
        return finding
    message = f"{finding.message}; {link}{place.message}"
    at = dataclasses.replace(
        finding.place, node=place.place.node, module=place.place.module, source=place.place.source
    )
    return dataclasses.replace(finding, message=message, place=at)


def proofs_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, causes first, with those that a search has proven before other errors.
    Unexplained differences follow from the first of them.
    """
    ranked = sorted(
        findings,
        key=lambda finding: (
            not finding.is_error,
            is_beyond_usual(finding),
            is_unproven(finding),
            _beside_proof(finding, findings),
        ),
    )
    if ranked and ranked[0].code in (*_DEPENDS, _DEAD_INPUT):
        ranked[0] = _placed(ranked[0], ranked)
    cause = proven_cause(ranked)
    if cause is None:
        return _with_fine_limits(_with_origin(_behind_first(ranked)))
    return behind_cause(ranked, cause)


def is_beyond_usual(finding: Finding) -> bool:
    """Say whether a finding is of the original's own NaN, at values that it may never meet: what is
    wrong at usual ones comes first.
    """
    case = finding.place.case
    return finding.code == "N103" and case is not None and not is_usual(case)


def proven_cause(ranked: Sequence[Finding]) -> Finding | None:
    """Return the first error whose correction was seen to remove the difference, if there is one. A
    place alone is a cause once it is known whose fault it is.
    """
    proven = (each for each in ranked if each.is_error and _is_proven(each))
    return next((e for e in proven if e.code != _PLACE_ONLY or e.evidence.get("owner")), None)


def behind_cause(findings: Sequence[Finding], cause: Finding) -> list[Finding]:
    """Return findings, of which some follow from a proven cause of the same target."""
    return [following(each, cause.code) if _follows(each, cause) else each for each in findings]


def _behind_first(ranked: list[Finding]) -> list[Finding]:
    """Refer from differences without a remedy of their own to the error that leads, if that is no
    difference itself.
    """
    first = next(iter(ranked), None)
    if first is None or not first.is_error or first.code in (*_CONSEQUENCES, _PLACE_ONLY):
        return ranked
    behind = Remedy(f"This may follow from {first.code}: correct that first.", refers=True)
    return [
        dataclasses.replace(each, remedy=behind) if each.remedy == FIND_THE_CAUSE else each
        for each in ranked
    ]


def _is_same_swap(finding: Finding, cause: Finding) -> bool:
    """Say whether one of two findings is a search's and the other a probe's of the same exchange. A
    change that only the finding has is not given up.
    """
    by_search = ["kind" in each.evidence for each in (finding, cause)]
    has_change = [each.remedy is not None and bool(each.remedy.change) for each in (finding, cause)]
    return (
        finding.code == cause.code
        and finding.code in _SWAPPED
        and by_search[0] != by_search[1]
        and not (has_change[0] and not has_change[1])
    )


def _follows(finding: Finding, cause: Finding) -> bool:
    """Say whether a finding follows from a proven cause, unless its own remedy was tried. A change
    of its own is dropped if the cause has one, or is none of the precision, which it would change.
    """
    if finding is cause:
        return False
    if finding.remedy == FIND_THE_CAUSE:
        return True
    if _is_same_swap(finding, cause):
        return True
    if finding.code in _DEPENDS and not _is_proven(finding) and _is_of_runtime(cause):
        return True
    tried = finding.remedy is not None and finding.remedy.proven
    changes = finding.remedy is not None and bool(finding.remedy.change)
    of_precision = cause.code.startswith(_PRECISION)
    replaced = not of_precision or (cause.remedy is not None and bool(cause.remedy.change))
    kept = tried or (changes and not replaced) or _is_proven(finding)
    return finding.code in _CONSEQUENCES and not kept
