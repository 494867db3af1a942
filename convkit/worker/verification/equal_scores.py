"""Whether indices that differ are those of equal scores, whose order torch leaves open."""

from collections.abc import Iterator, Mapping

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.cause.recording.recorded_call import Operation, Recording

# Operations that return places of their first argument's elements.
_CHOOSING = frozenset(("topk", "sort", "argsort", "argmax", "argmin", "max", "min", "kthvalue"))

Outputs = Mapping[str, np.ndarray]


def equal_scores_finding(
    recording: Recording, case: str, expected: Outputs, computed: Outputs, parted: Outputs
) -> Finding | None:
    """Return N509 if every output that differs has the places of scores that are equal, to the bit,
    where the graph chose others; None otherwise. `parted` are the elements that differ.
    """
    choices = {name: _choice(recording, expected[name], computed[name]) for name in parted}
    first = next(iter(choices), None)
    if first is None or any(choice is None for choice in choices.values()):
        return None
    operation = choices[first]
    assert operation is not None
    share = float(parted[first].mean())
    place = tuple(int(each) for each in np.argwhere(parted[first])[0])
    where = f" at {operation.source}" if operation.source else ""
    return Finding(
        "N509",
        f"{operation.kind}{where} chooses between equal scores in case {case!r}, and torch leaves"
        f" their order open: {share:.2%} of {first!r} differs, and the scores of all these"
        f" elements are equal, to the bit. One of them: {first}{[*place]} is"
        f" {computed[first][place]}, in the original {expected[first][place]}",
        Place(tensor=first, module=operation.module or None, source=operation.source, case=case),
        {"kind": "equal", "proven": True, "parted": share, "operation": operation.name},
        Remedy(
            "If the order of equal scores matters, make it definite in the model's code:"
            " torch.sort(scores, dim, descending=True, stable=True). Otherwise judge the scores in"
            f" place of {first!r}. Neither was tried."
        ),
    )


def _choice(recording: Recording, expected: np.ndarray, computed: np.ndarray) -> Operation | None:
    """Return the operation that an output has the places of, if the graph's have equal scores."""
    if expected.dtype.kind not in "iu" or expected.shape != computed.shape:
        return None
    for operation in reversed(recording.operations):
        if operation.kind not in _CHOOSING or not operation.inputs:
            continue
        places = recording.values[operation.outputs[-1]].array
        if places.dtype.kind not in "iu" or places.size != expected.size:
            continue
        if not np.array_equal(places.ravel(), expected.ravel()):
            continue
        scores = recording.values[operation.inputs[0]].array
        for axis in _axes(scores, places):
            if _are_equal(scores, places, computed.reshape(places.shape), axis):
                return operation
    return None


def _axes(scores: np.ndarray, places: np.ndarray) -> Iterator[int]:
    """Yield the axes along which an operation may have chosen."""
    for axis in reversed(range(scores.ndim)):
        kept = scores.shape[:axis] + scores.shape[axis + 1 :]
        whole = places.ndim == scores.ndim
        others = places.shape[:axis] + places.shape[axis + 1 :] if whole else places.shape
        if others == kept:
            yield axis


def _are_equal(scores: np.ndarray, here: np.ndarray, there: np.ndarray, axis: int) -> bool:
    """Return True if two choices along an axis have the same scores, and none chose one twice."""
    if here.ndim != scores.ndim:
        here, there = np.expand_dims(here, axis), np.expand_dims(there, axis)
    if there.min(initial=0) < 0 or there.max(initial=0) >= scores.shape[axis]:
        return False
    chosen = np.sort(there, axis=axis)
    if (np.diff(chosen, axis=axis) == 0).any():
        return False
    own, other = (np.take_along_axis(scores, each, axis) for each in (here, there))
    return bool(np.array_equal(own, other))
