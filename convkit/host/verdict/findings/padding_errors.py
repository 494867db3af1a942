"""Recognizes errors that only concern padding, whose values no caller reads."""

from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.metrics.limits import is_within
from convkit.protocol.metrics.number_text import distinct_texts


def padding_findings(recipe: Recipe, cases: Sequence[CaseVerdict]) -> list[Finding]:
    """Return N506 for each failed output if, without padding, nothing would have failed.

    That is the counterfactual: the same metrics and limits, without the positions that a mask marks
    as padding. NaN counts wherever it is, so an output that is NaN at padding is not excused.
    """
    failed: dict[str, list[tuple[CaseVerdict, OutputVerdict]]] = {}
    for case in cases:
        if not case.passed and (case.error is not None or not case.outputs):
            return []
        for output in case.outputs:
            if not output.passed:
                failed.setdefault(output.output, []).append((case, output))
    if not failed or not all(_passes_unpadded(o) for each in failed.values() for _, o in each):
        return []
    places = {spec.name: place for place, spec in enumerate(recipe.outputs)}
    return [_finding(places[name], each) for name, each in failed.items()]


def _passes_unpadded(output: OutputVerdict) -> bool:
    return output.unpadded is not None and is_within(output.unpadded.metrics, output.limits)


def _finding(place: int, failed: Sequence[tuple[CaseVerdict, OutputVerdict]]) -> Finding:
    case, output = max(failed, key=lambda each: each[1].metrics.max_abs)
    assert output.unpadded is not None
    mask = output.unpadded.mask
    there, elsewhere = output.metrics.max_abs, output.unpadded.metrics.max_abs
    shown = distinct_texts(there, elsewhere)
    return Finding(
        "N506",
        f"{output.output!r} differs only at positions that {mask!r} marks as padding: by {shown[0]}"
        f" there, and by {shown[1]} elsewhere, which is within the tolerance",
        Place(tensor=output.output, case=case.case),
        {
            "kind": "padding",
            "proven": True,
            "mask": mask,
            "at_padding": there,
            "elsewhere": elsewhere,
            "nrmse": output.metrics.nrmse,
            "cases": [each.case for each, _ in failed],
        },
        Remedy(
            f"If nothing reads {output.output!r} at padding, declare mask: {mask} for it. convkit"
            " then measures padding without judging it.",
            {f"outputs.{place}.mask": mask},
        ),
    )
