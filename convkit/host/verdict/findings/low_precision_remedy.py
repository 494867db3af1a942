"""The remedy for a low-precision target that misses its tolerance: let convkit find which modules
must stay in float32.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.host.recipe.keys.recipe import MixedPrecision, Recipe, Target, Tolerance, target_key
from convkit.host.recipe.keys.tolerances import TooFine, too_fine
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.json_codec import Json

# Values of outputs from which on a type's resolution, which is that of values of about 1, says
# what a limit on their absolute error can be.
_NOT_SMALL = 0.1
FIND_MODULES = "Let convkit find the modules that must stay in float32."


def search_remedy(
    recipe: Recipe,
    target: Target,
    override: Tolerance | None = None,
    largest: Mapping[str, float] | None = None,
) -> Remedy | None:
    """Return the change to `keep_float32: auto`; None if the target is in float32 or has it.

    If the type can by far not meet the limit on an output, the search would take minutes and leave
    nothing in low precision, so the remedy says that instead. `largest` is the original's largest
    magnitude per output.
    """
    chosen = target.low_precision or target.quantization
    if chosen is None or chosen.is_auto:
        return None
    if fine := out_of_reach(recipe, target, override, largest or {}):
        return _own_tolerance(fine)
    name = next(name for name, each in recipe.targets.items() if each is target)
    if isinstance(chosen, MixedPrecision):
        precision: dict[str, Json] = {"default": chosen.default}
        if chosen.saturate:
            precision["saturate"] = True
    else:
        precision = chosen.model_dump(mode="json", exclude_unset=True)
    return Remedy(
        f"{FIND_MODULES} Or find the cause, or relax the tolerance if you can justify it.",
        {f"{target_key(name)}.precision": precision | {"keep_float32": "auto"}},
    )


def out_of_reach(
    recipe: Recipe, target: Target, override: Tolerance | None, largest: Mapping[str, float]
) -> TooFine | None:
    """Return a limit that the target's type can by far not meet; None if there is none."""
    for output, value in largest.items():
        fine = too_fine(recipe, target, output, override)
        if fine is not None and fine.by_far and value >= _NOT_SMALL:
            return fine
    return None


def without_exceptions(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings of which none proposes modules to exclude from quantization: with a limit out
    of reach, that would only make the model larger.
    """
    return [
        dataclasses.replace(each, remedy=None) if each.code == "Q102" else each for each in findings
    ]


def _own_tolerance(fine: TooFine) -> Remedy:
    return Remedy(
        f"Give the target its own tolerance: {fine.limit:g} is far below what {fine.type} can"
        f" resolve. Its default is {fine.better}."
    )
