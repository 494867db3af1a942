"""The low-precision types that targets compute in, and the tolerance that follows from each."""

from typing import cast

from convkit.host.recipe.keys.recipe import ComputedType, Recipe, Target, Tolerance
from convkit.protocol.messages import LOW_TYPES, LowType
from convkit.protocol.metrics.rounding_limits import Rounding

# Relative size of one rounding: half the distance between two neighboring numbers near 1, for
# integers of the range that a tensor's scale covers.
RESOLUTION = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "int8": 2.0**-8, "int4": 2.0**-4}

# Cases with values that a model does not usually meet; calibration leaves them out.
BEYOND_USUAL_RANGES = ("extreme", "values")

# Independent roundings add up by their squares, so 400 in a row, as in a model of a dozen layers,
# leave twenty times one of them. Integers round relative to a tensor's largest value, which is
# several times its root mean square: MiniLM with dynamic int8 has 0.17.
_ROUNDINGS = 20
_MOST_ERROR = {
    "float16": _ROUNDINGS * RESOLUTION["float16"],
    "bfloat16": _ROUNDINGS * RESOLUTION["bfloat16"],
    "int8": 0.2,
    "int4": 0.4,
}


# A rounded value is off by half a step at most, and by this part of that on average: the root mean
# square, for values spread over an octave.
_ON_AVERAGE = 0.38


def rounding_error(low: str) -> float:
    """Return the normalized root mean squared error of rounding every value of a tensor once."""
    return _ON_AVERAGE * RESOLUTION[low]


def low_type(target: Target) -> str | None:
    """Return the type with the coarsest steps that a target computes in; None for float32."""
    if target.low_precision is not None:
        return str(target.low_precision.default)
    if target.quantization is not None:
        return "int4" if "int4" in target.quantization.quantize else "int8"
    return None


def rounded_types(recipe: Recipe) -> tuple[LowType, ...]:
    """Return the types that a recipe's original is rounded to: all of them if a target computes in
    one, so that further targets in others (as a search adds them) find it done.
    """
    return LOW_TYPES if any(map(low_type, recipe.targets.values())) else ()


def computed_type(target: Target) -> ComputedType:
    """Return the type with the coarsest steps that a target computes in."""
    return cast("ComputedType", low_type(target) or "float32")


def compared_type(recipe: Recipe, target: Target) -> str | None:
    """Return the type with the coarsest steps that a target or its original computes in; None if
    both compute in float32.

    The original's is `model.dtype`, or the type of its outputs if that is the checkpoint's own.
    """
    written = getattr(recipe.model, "dtype", None)
    types = {low_type(target), written, *(tensor.dtype for tensor in recipe.outputs)}
    low = [each for each in types if each is not None and each in _MOST_ERROR]
    return max(low, key=lambda each: _MOST_ERROR[each], default=None)


def rounding_of(target: Target) -> Rounding:
    """Return how a target computes, for the limits that follow from it."""
    quantized, low = target.quantization, low_type(target)
    activations = quantized is not None and "weights" not in quantized.quantize
    usual = 0.0 if low is None else usual_nrmse(low)
    return Rounding(low, activations, usual, searched=target.searches_precision)


def is_calibrated_for(target: Target, case: str) -> bool:
    """Say whether a target's type holds a case's values: a static quantization clips what is beyond
    the ranges it was calibrated with, which are those of usual inputs.
    """
    quantized = target.quantization
    is_static = quantized is not None and quantized.quantize == "static-int8"
    return not (is_static and case.partition(":")[0] in BEYOND_USUAL_RANGES)


def derived_tolerance(recipe: Recipe, target: Target) -> Tolerance | None:
    """Return the tolerance of a target that declares none and computes in low precision, or whose
    original does; None for float32.

    It limits the root mean squared error in parts of the reference's root mean square, so that it
    fits outputs of any magnitude.
    """
    low = compared_type(recipe, target)
    return None if low is None else Tolerance.model_validate({"nrmse": usual_nrmse(low)})


def usual_nrmse(low: str) -> float:
    """Return the normalized root mean squared error that a type is allowed by default."""
    return round(_MOST_ERROR[low], 4)
