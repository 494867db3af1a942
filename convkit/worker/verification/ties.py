"""Whether the original itself decides by rounding: at a tie, two correct models may part.

The proof is the original again with its inputs and weights moved by a few units in the last place,
as two correct kernels differ that add in another order. If it then returns the very values that the
graph returned, the difference says nothing about the graph. A wrong graph returns others, also
where the original's rounding is large.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.cases.equal_scores import ROUNDED, differing
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.recorded_call import Operation, Recording
from convkit.worker.reference.recorded_original import TorchCase

# Times that everything is moved, each time otherwise; runs in which nothing changes, after which an
# original counts as steady, as most do.
_RUNS, _STEADY = 8, 4
# Every number is moved up or down by up to so many of float32's units in the last place.
_UNITS, _UNIT = 8, 2.0**-23
# The part of the elements that differ that the original must have returned itself in some run.
_COVERED = 0.5
# The relative error that only a decision makes of a value.
_DECIDED = 1e-3
# Times the share of labels that differ, which a remedy allows.
_ALLOWED = 4
# Weights in bytes that are moved: a copy of them is kept meanwhile.
_MOST_BYTES = 4 << 30

Outputs = Mapping[str, np.ndarray]


def undecided_finding(
    case: TorchCase, name: str, expected: Outputs, computed: Outputs, usual: Mapping[str, float]
) -> Finding | None:
    """Return N509 if the original, moved by a few units in the last place, returns what the graph
    does where they differ; None otherwise. `expected` and `computed` are the outputs of the
    original and of the graph in the case, `usual` is how large outputs are in most cases.
    """

    def parts(output: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return differing(one, other, like=expected[output], usual=usual.get(output, 0.0))

    off = {output: parts(output, values, computed[output]) for output, values in expected.items()}
    parted = {output: elements for output, elements in off.items() if elements.any()}
    if not parted or any(expected[each].shape != computed[each].shape for each in parted):
        return None
    covered = {output: np.zeros_like(elements) for output, elements in parted.items()}
    changes: dict[str, list[float]] = {output: [] for output in parted}
    for run in range(_RUNS):
        with _moved(case, run) as moved:
            outputs = moved.returned()
        for output in parted:
            if outputs[output].shape == computed[output].shape:
                covered[output] |= ~parts(output, computed[output], outputs[output])
            changes[output].append(_distance(expected[output], outputs[output]))
        if run == _STEADY - 1 and not any(max(each) > ROUNDED for each in changes.values()):
            return None
    shares = {
        output: float(covered[output][elements].mean()) for output, elements in parted.items()
    }
    if any(not share >= _COVERED for share in shares.values()):
        return None
    furthest = max(parted, key=lambda each: float(parted[each].mean()))
    run = int(np.argmax(changes[furthest]))
    return _finding(
        name,
        _Tie(
            furthest,
            is_labels=expected[furthest].dtype.kind != "f",
            parted=float(parted[furthest].mean()),
            covered=shares[furthest],
            element=element_text(
                case, off[furthest], expected[furthest], computed[furthest], furthest
            ),
        ),
        first_decision(case, run),
    )


@dataclasses.dataclass(frozen=True)
class _Tie:
    """An output of which a part differs, which part of that the original returned itself, and one
    element of it in words.
    """

    output: str
    is_labels: bool
    parted: float
    covered: float
    element: str


def element_text(
    case: TorchCase, off: np.ndarray, expected: np.ndarray, computed: np.ndarray, output: str
) -> str:
    """Return the first element that differs, after the input's that has the same place, if any."""
    place = tuple(int(each) for each in np.argwhere(off)[0])
    read = ""
    for name, tensor in case.inputs.items():
        if tensor.is_floating_point() and 0 < tensor.dim() <= len(place):
            at = place[: tensor.dim()]
            if tuple(tensor.shape) == off.shape[: tensor.dim()]:
                read = f"for {name}{[*at]} = {float(tensor[at]):.9g}, "
                break
    return f"{read}{output}{[*place]} is {computed[place]:g}, in the original {expected[place]:g}"


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the share of elements that differ, for whole numbers; else the relative error."""
    if one.shape != other.shape:
        return float("inf")
    if one.dtype.kind != "f":
        return float((one != other).mean()) if one.size else 0.0
    return relative_error(other, one)


@contextlib.contextmanager
def _moved(case: TorchCase, seed: int) -> Iterator[TorchCase]:
    """Yield a case whose floats, and the original's weights meanwhile, are a little off."""
    random = torch.Generator().manual_seed(seed)

    def step(tensor: torch.Tensor) -> torch.Tensor:
        units = torch.randint(-_UNITS, _UNITS + 1, tensor.shape, generator=random)
        return tensor * (1 + units.to(tensor.dtype) * _UNIT)

    weights = [each for each in case.module.parameters() if each.dtype == torch.float32]
    if sum(each.numel() * each.element_size() for each in weights) > _MOST_BYTES:
        weights = []
    kept = [each.detach().clone() for each in weights]
    inputs = {
        name: step(each) if each.dtype == torch.float32 else each
        for name, each in case.inputs.items()
    }
    try:
        with torch.no_grad():
            for each in weights:
                each.copy_(step(each))
        yield dataclasses.replace(case, inputs=inputs)
    finally:
        with torch.no_grad():
            for each, usual in zip(weights, kept, strict=True):
                each.copy_(usual)


def first_decision(case: TorchCase, run: int) -> Operation | None:
    """Return the first operation whose results part although what it reads is equal but for
    rounding; None if none can be seen.
    """
    usual = case.recorded().recording
    with _moved(case, run) as moved:
        other = moved.recorded().recording
    if len(usual.operations) != len(other.operations):
        return None
    read_later = {index for each in usual.operations for index in each.inputs}
    read_later |= {*usual.outputs.values()}
    for one, two in zip(usual.operations, other.operations, strict=True):
        if (one.name, len(one.inputs), len(one.outputs)) != (
            two.name,
            len(two.inputs),
            len(two.outputs),
        ):
            return None
        read = _furthest(usual, other, zip(one.inputs, two.inputs, strict=True))
        pairs = zip(one.outputs, two.outputs, strict=True)
        made = _furthest(usual, other, (each for each in pairs if each[0] in read_later))
        if made > _DECIDED and read <= ROUNDED:
            return one
    return None


def _furthest(one: Recording, other: Recording, pairs: Iterable[tuple[int, int]]) -> float:
    return max((_between(one, other, *each) for each in pairs), default=0.0)


def _between(one: Recording, other: Recording, first: int, second: int) -> float:
    return _distance(one.values[first].array, other.values[second].array)


def _finding(case: str, tie: _Tie, operation: Operation | None) -> Finding:
    begins = ""
    if operation is not None:
        where = module_at(operation.module, operation.source)
        begins = (
            f". It begins at {operation.kind} ({where}), which chooses between equal values, or"
            " where they cancel out"
        )
    said = (
        f"{tie.parted:.2%} of {tie.output!r} differs; with inputs and weights moved by a few"
        " units in the last place, the original returns the graph's values in"
        f" {tie.covered:.0%} of these elements"
    )
    agreement = max(0.0, float(np.floor(100 * (1 - _ALLOWED * tie.parted)) / 100))
    allowed = tie.is_labels and agreement > 0
    return Finding(
        "N509",
        f"the original itself decides by rounding in case {case!r}: {said}. One of them:"
        f" {tie.element}{begins}",
        Place(
            tensor=tie.output,
            module=(operation.module or None) if operation is not None else None,
            source=operation.source if operation is not None else None,
            case=case,
        ),
        {
            "kind": "undecided",
            "owner": "original",
            "proven": True,
            "parted": tie.parted,
            "covered": tie.covered,
            "operation": operation.name if operation is not None else None,
            "element": tie.element,
        },
        Remedy(
            f"If it does not matter which of two equals is chosen, allow a share: agreement:"
            f" {agreement:g} for {tie.output!r}."
            if allowed
            else "Keep decisions away from ties in the model's code: compare with a margin, or"
            " round before comparing.",
            {f"verify.outputs.{tie.output}": {"agreement": agreement}} if allowed else {},
        ),
    )
