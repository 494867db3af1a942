"""Inputs whose values decide the outputs' sizes (axes, counts, the size to scale to): a draft gives
each of them one value, since a recipe cannot state sizes that follow from it.
"""

import math
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import DimensionError, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.size_trials import Trials

# More elements than this are data.
_MOST_ELEMENTS = 16
# The values to try: sizes people would scale to or cut off at, then what is a valid axis.
_VALUES = (64, 16, 8, 4, 3, 2, 1, 0)

Samples = Mapping[str, Sample]


def held_values(
    inputs: tuple[TensorSpec, ...],
    samples: Samples,
    sizes: Mapping[str, int],
    trials: Trials,
    draws: Sequence[Draw],
    among: Sequence[TensorSpec] | None = None,
    likely: Sequence[int] = (),
) -> dict[str, Sample]:
    """Return a constant for each input that must have one for the outputs' sizes to be the same
    with all draws; none if constants do not achieve that. `among` are the inputs that may have one;
    by default, all. `likely` are values to try first.
    """

    def steady(tried: Samples) -> bool:
        given = at_full_length(inputs, tried, sizes)
        found = [trials.run(inputs, given, sizes, draw).shapes for draw in draws]
        first = found[0]
        if first is None or any(0 in shape for shape in first.values()):
            return False  # empty outputs are always alike
        return all(shapes == first for shapes in found)

    allowed = inputs if among is None else among
    deciding = [spec for spec in allowed if may_decide(spec, samples, sizes)]
    names = [spec.name for spec in deciding]
    if not names:
        return {}
    for value in dict.fromkeys((*likely, *_VALUES)):
        held = {
            spec.name: Sample("constant", (min(value, 1) if spec.dtype == "bool" else value,))
            for spec in deciding
        }
        if not steady({**samples, **held}):
            continue
        for name in names:
            freed = {other: sample for other, sample in held.items() if other != name}
            if steady({**samples, **freed}):
                held = freed
        return held
    return {}


def deciding_booleans(
    inputs: tuple[TensorSpec, ...], samples: Samples, sizes: Mapping[str, int], trials: Trials
) -> dict[str, tuple[Sample, tuple[str, ...]]]:
    """Return each bool with which an output's size changes: the constant with the larger outputs,
    and the names of those outputs. Drawn freely, it would leave them empty in most cases.
    """
    found: dict[str, tuple[Sample, tuple[str, ...]]] = {}
    for spec in inputs:
        if not may_decide(spec, samples, sizes, ("bool",)):
            continue
        held = {**samples, **{name: sample for name, (sample, _) in found.items()}}
        choices = [Sample("constant", (value,)) for value in (1, 0)]
        true, false = (
            trials.run(
                inputs, at_full_length(inputs, {**held, spec.name: choice}, sizes), sizes
            ).shapes
            for choice in choices
        )
        if true is None or false is None:
            continue
        if changed := tuple(name for name in true if true[name] != false[name]):
            elements = [sum(math.prod(run[name]) for name in changed) for run in (true, false)]
            found[spec.name] = (choices[elements[0] < elements[1]], changed)
    return found


def may_decide(
    spec: TensorSpec,
    samples: Samples,
    sizes: Mapping[str, int],
    dtypes: tuple[str, ...] = ("int32", "int64", "bool"),
) -> bool:
    """Return True if an input is small enough, and of a type, to decide sizes by its values."""
    if spec.dtype not in dtypes or samples[spec.name].kind != "integers":
        return False
    try:
        shape = spec.concrete_shape(sizes)
    except DimensionError:
        return False
    return 0 < math.prod(shape) <= _MOST_ELEMENTS
