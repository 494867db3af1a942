"""Inputs whose values decide the outputs' sizes (axes, counts, the size to scale to): a draft gives
each of them one value, since a recipe cannot state sizes that follow from it.
"""

from collections.abc import Mapping, Sequence

from convkit.cases.samples import Draw
from convkit.models.survey.start import at_full_length
from convkit.models.survey.trials import Trials
from convkit.tensors import DimensionError, TensorSpec
from convkit.worker.protocol import Sample

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
) -> dict[str, Sample]:
    """Return a constant for each input that must have one for the outputs' sizes to be the same
    with all draws; none if constants do not achieve that.
    """

    def steady(tried: Samples) -> bool:
        given = at_full_length(inputs, tried, sizes)
        found = [trials.run(inputs, given, sizes, draw).shapes for draw in draws]
        first = found[0]
        if first is None or any(0 in shape for shape in first.values()):
            return False  # empty outputs are always alike
        return all(shapes == first for shapes in found)

    names = [spec.name for spec in inputs if _may_decide(spec, samples, sizes)]
    if not names:
        return {}
    for value in _VALUES:
        held = dict.fromkeys(names, Sample("constant", (value,)))
        if not steady({**samples, **held}):
            continue
        for name in names:
            freed = {other: sample for other, sample in held.items() if other != name}
            if steady({**samples, **freed}):
                held = freed
        return held
    return {}


def _may_decide(spec: TensorSpec, samples: Samples, sizes: Mapping[str, int]) -> bool:
    if spec.dtype not in ("int32", "int64") or samples[spec.name].kind != "integers":
        return False
    try:
        shape = spec.concrete_shape(sizes)
    except DimensionError:
        return False
    count = 1
    for size in shape:
        count *= size
    return 0 < count <= _MOST_ELEMENTS
