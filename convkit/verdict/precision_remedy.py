"""The remedy for a low-precision target that misses its tolerance: let convkit find which modules
must stay in float32.
"""

from convkit.codec import Json
from convkit.findings.model import Remedy
from convkit.recipe.models import MixedPrecision, Recipe, Target, target_key


def search_remedy(recipe: Recipe, target: Target) -> Remedy | None:
    """Return the change to `keep_float32: auto`; None if the target is in float32 or has it."""
    chosen = target.low_precision or target.quantization
    if chosen is None or chosen.is_auto:
        return None
    name = next(name for name, each in recipe.targets.items() if each is target)
    if isinstance(chosen, MixedPrecision):
        precision: dict[str, Json] = {"default": chosen.default}
        if chosen.saturate:
            precision["saturate"] = True
    else:
        precision = chosen.model_dump(mode="json", exclude_unset=True)
    return Remedy(
        "Let convkit find the modules that must stay in float32. Or find the cause, or relax the"
        " tolerance if you can justify it.",
        {f"{target_key(name)}.precision": precision | {"keep_float32": "auto"}},
    )
