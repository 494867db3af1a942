"""Values that the original computes from its weights alone, as an exporter may have done before."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from convkit.worker.cause.recording.recorded_call import VIEWS, Recording
from convkit.worker.cause.weights.fused_weights import Derived


def precomputed(recording: Recording) -> Iterator[Derived]:
    """Yield what operations compute from weights and constants, without any input: a norm's weight
    plus one, the exponential of a decay, weights joined or normalized.

    Views and copies of a weight are the weight.
    """
    origins: dict[int, tuple[str, ...]] = {
        value.index: (value.name,) for value in recording.values if value.kind == "weight"
    }
    for operation in recording.operations:
        if not recording.fixed.issuperset(operation.outputs):
            continue
        read = [name for index in operation.inputs for name in origins.get(index, ())]
        sources = tuple(dict.fromkeys(read))
        origins |= dict.fromkeys(operation.outputs, sources)
        if not sources or operation.kind in VIEWS:
            continue
        for index in operation.outputs:
            array = recording.values[index].array
            if array.dtype.kind == "f":
                text = f"{sources[0]} after {operation.kind}"
                yield Derived(text, array.shape, partial(np.asarray, array), sources)
