"""What is doubtful about a recipe, known before anything runs: limits that cannot mean what they
seem to, and samples that leave out what a model meets in use. Pure functions.
"""

from collections.abc import Iterator, Mapping

from convkit.host.recipe.checks.padding_samples import marks_padding
from convkit.host.recipe.keys.low_precision_types import (
    BEYOND_USUAL_RANGES,
    compared_type,
    is_calibrated_for,
)
from convkit.host.recipe.keys.recipe import Integers, Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import (
    FROM_PRECISION,
    TooFine,
    decided_by,
    limits_for,
    tolerance_of,
    too_fine,
)
from convkit.protocol.contract import is_whole
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.metrics.metric_registry import absolute_limit

# Whole numbers of these types are usually labels, tokens and indices, and smaller types pixels.
_LABELS = ("bool", "int32", "int64", "uint32", "uint64")
_NAMED_LIKE_MASKS = ("mask", "attention_mask", "padding_mask", "input_mask")


def advice(recipe: Recipe, target: Target, override: Tolerance | None = None) -> list[Finding]:
    """Return the advice about a target: N502 to N504 and N507 on its tolerances, C401 and
    C402 on the samples that all targets share.
    """
    return [*sample_advice(recipe), *_tolerance_advice(recipe, target, override)]


def sample_advice(recipe: Recipe) -> list[Finding]:
    """Return C401 for a mask drawn as plain integers, C402 for a mask of an output that is none."""
    findings = []
    for place, tensor in enumerate(recipe.inputs):
        sample = tensor.sample
        if not isinstance(sample, Integers) or tuple(sample.integers) != (0, 2):
            continue
        masks = [output.name for output in recipe.outputs if output.mask == tensor.name]
        if masks or _is_named_like_a_mask(tensor.name, tensor.origin):
            findings.append(_plain_mask(tensor.name, place, masks))
    masked = {tensor.name: tensor for tensor in recipe.inputs}
    for output in recipe.outputs:
        mask = masked.get(output.mask or "")
        if mask is None or marks_padding(mask.sample):
            continue
        if any(finding.place.tensor == mask.name for finding in findings):
            continue
        findings.append(
            Finding(
                "C402",
                f"output {output.name!r} is compared only where {mask.name!r} is not 0, and"
                f" {mask.name!r} is not drawn as a padding_mask or key_padding_mask: elements are"
                " left out at random",
                Place(tensor=output.name),
                {"mask": mask.name},
                Remedy(
                    f"Give {mask.name!r} sample: padding_mask (key_padding_mask if 1 marks"
                    " padding), or remove the output's mask."
                ),
            )
        )
    return findings


def _is_named_like_a_mask(*names: str | None) -> bool:
    return any(
        name is not None and (name in _NAMED_LIKE_MASKS or name.endswith("_mask")) for name in names
    )


def _plain_mask(name: str, place: int, masks: list[str]) -> Finding:
    # torch.nn.MultiheadAttention's argument of this name is 1 at padding.
    sample = "key_padding_mask" if "key_padding" in name else "padding_mask"
    used = f" and masks {', '.join(map(repr, masks))}" if masks else ""
    return Finding(
        "C401",
        f"input {name!r} looks like a mask{used}, but is drawn as zeros and ones at random: no case"
        " has padding, so no case shows the effect of padding",
        Place(tensor=name),
        {"sample": [0, 2]},
        Remedy(f"Set sample: {sample} for {name!r}.", {f"inputs.{place}.sample": sample}),
    )


def _tolerance_advice(
    recipe: Recipe, target: Target, override: Tolerance | None
) -> Iterator[Finding]:
    if override is None and decided_by(recipe, target) == "task metric":
        return  # no tolerance decides
    blind: dict[str, float] = {}
    derived: dict[str, float] = {}
    for output in recipe.outputs:
        found = tolerance_of(recipe, target, output.name, override)
        limits = limits_for(recipe, target, output.name, override)
        if is_whole(output.dtype):
            if judges_labels_by_distance(output.dtype, limits):
                yield _labels(output.name, output.dtype, limits)
            continue
        if found.place == FROM_PRECISION:
            derived[output.name] = limits["nrmse"]
        if set(limits) == {"cosine"}:
            blind[output.name] = limits["cosine"]
        if fine := too_fine(recipe, target, output.name, override):
            yield _too_fine(fine)
    if blind:
        yield _blind(blind)
    if derived:
        clips = not is_calibrated_for(target, BEYOND_USUAL_RANGES[0])
        yield _derived(derived, str(compared_type(recipe, target)), clips=clips)


def _derived(limits: Mapping[str, float], low: str, *, clips: bool) -> Finding:
    limit = next(iter(limits.values()))
    outputs = ", ".join(map(repr, limits))
    beyond = (
        f", and any error in {' and '.join(BEYOND_USUAL_RANGES)}, which are beyond the calibrated"
        " ranges"
        if clips
        else ""
    )
    return Finding(
        "N507",
        f"the recipe declares no tolerance; {low} allows nrmse <= {limit:g} for {outputs}{beyond}",
        evidence={"nrmse": dict(limits), "type": low},
        remedy=Remedy(
            "Give the target its own tolerance once you know what your task needs.", refers=True
        ),
    )


def _is_exact(limits: Mapping[str, float]) -> bool:
    """Say whether limits on whole numbers count labels, allow none to differ, or are a share of the
    numbers, as of what counts something (microseconds).
    """
    limit = absolute_limit(limits)
    return "agreement" in limits or "rtol" in limits or (limit is not None and limit < 1)


def judges_labels_by_distance(dtype: str, limits: Mapping[str, float]) -> bool:
    """Return whether limits on an output that usually holds labels allow others nearby."""
    return dtype in _LABELS and not _is_exact(limits)


def _labels(output: str, dtype: str, limits: Mapping[str, float]) -> Finding:
    shown = ", ".join(f"{name}: {value:g}" for name, value in limits.items())
    return Finding(
        "N504",
        f"output {output!r} is {dtype} and judged by distance ({shown}): labels 3 and 4 are no"
        " nearer than 3 and 400",
        Place(tensor=output),
        {"limits": dict(limits)},
        Remedy(
            f"Judge {output!r} by the share of equal elements, such as"
            f" outputs: {{{output}: {{agreement: 0.999}}}}; or remove its tolerance: then every"
            " element must be equal."
        ),
    )


def _blind(limits: Mapping[str, float]) -> Finding:
    first, more = next(iter(limits)), len(limits) - 1
    others = f" (and {more} more)" if more else ""
    return Finding(
        "N503",
        f"output {first!r}{others} is judged by cosine {limits[first]:g} alone, which is blind to"
        " scale: all values doubled would pass",
        Place(tensor=first),
        {"cosine": dict(limits)},
        Remedy("Add a limit on the error itself: max_abs, rms, or atol with rtol."),
    )


def _too_fine(fine: TooFine) -> Finding:
    inherited = "" if fine.place.startswith("targets") else f", inherited from {fine.place},"
    return Finding(
        "N502",
        f"the limit of {fine.limit:g} on {fine.output!r}{inherited} is below the resolution of"
        f" {fine.type}: rounding one value of about 1 is already off by up to"
        f" {fine.resolution:.1g}",
        Place(tensor=fine.output),
        {"limit": fine.limit, "resolution": fine.resolution, "type": fine.type, "from": fine.place},
        Remedy(f"Give the target its own tolerance. The default of {fine.type} is {fine.better}."),
    )
