"""Corrects remedies for a file that departs from a contract its original follows.

Where a recipe has its own original, two models share one contract. Once the original has run with
it, the recipe is proven right, and a change that suits the file alone would only move the fault:
the original would refuse an input's new name, or return an output of the old type.
"""

import dataclasses
from collections.abc import Iterable

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import StageReport
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json

_CORRECT = "Correct the file at its source: the original follows the recipe."


def with_feasible_remedies(
    findings: Iterable[Finding], recipe: Recipe, reference: StageReport
) -> list[Finding]:
    """Return the findings, with remedies that the original could follow as well.

    `reference` is the original's stage. If it found the recipe at fault, or there is no original
    but the file itself, the remedies stay.
    """
    follows = (
        recipe.original is not None
        and recipe.original.onnx is None
        and reference.status in ("hit", "done")
        and not any(finding.is_error for finding in reference.findings)
    )
    return [_corrected(each, recipe) if follows else each for each in findings]


def _corrected(finding: Finding, recipe: Recipe) -> Finding:
    remedy = finding.remedy
    if "boundary" not in finding.evidence or remedy is None:
        return finding
    match finding.code:
        case "C104" | "C204" if len(remedy.change) == 1:  # it may be corrected already
            remedy = _renamed(finding.code, remedy, recipe)
        case "C105" if not _are_integers(finding.evidence):
            remedy = Remedy(_CORRECT)
        case "C101" | "C201":
            lost = finding.place.tensor
            remedy = Remedy(f"{_CORRECT} Look for the step that lost {lost!r}.")
        case "C102" | "C107" | "C202" | "C205" | "C207":
            remedy = Remedy(_CORRECT)
        case "C203" if not all(spec.origin for spec in recipe.outputs):
            # Right if the original names its outputs; of a tuple, `from` must say which is which.
            advice = " If the original returns a tuple, say which is which: from: 0 for its first."
            text = remedy.text.removesuffix(advice)
            remedy = dataclasses.replace(remedy, text=text + advice)
    return dataclasses.replace(finding, remedy=remedy)


def _renamed(code: str, remedy: Remedy, recipe: Recipe) -> Remedy:
    """Use the file's name, and keep the original's under `from`."""
    specs = recipe.inputs if code == "C104" else recipe.outputs
    ((path, name),) = remedy.change.items()
    tensor = path.rpartition(".")[0]
    spec = specs[int(tensor.rpartition(".")[2])]
    origin = spec.origin or spec.name
    return Remedy(
        f"Use the file's name {name!r} in {tensor}.name, and keep the original's under from:"
        f" {origin}.",
        {f"{tensor}.name": name, f"{tensor}.from": origin},
    )


def _are_integers(evidence: dict[str, Json]) -> bool:
    """Say whether both types are integers: models that look up rows accept any width of them."""
    return all(str(evidence[key]).startswith(("int", "uint")) for key in ("declared", "found"))
