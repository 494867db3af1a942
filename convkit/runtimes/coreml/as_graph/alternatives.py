"""Operations that a converter to Core ML could have confused with the one that it wrote: other
arguments, as coremltools defines them, other weights, other operations of the same signature.
"""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np

from convkit.runtimes.coreml.as_graph import definitions
from convkit.runtimes.coreml.as_graph.weights import (
    Values,
    is_constant,
    other_weights,
    with_constant,
)
from convkit.worker.cause.other_formats.format_operations import Alternative
from convkit.worker.cause.other_formats.source_operation import SourceStep
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.graph.operators.node_builder import INSIDE

# Elements. Longer arguments are tables.
_FEW = 12
# Axes. Of more, their orders and choices are too many.
_RANK = 5
_ONE_AXIS = ("axis",)
_SIGNED = ("axes", "axis", "perm", "begin", "end", "shape", "lower", "upper", "x", "y", "indices")
_MAY_BE_0 = ("pad", "crop_height", "crop_width", "batch_dims")
_COMPARISONS = ({"less", "greater"}, {"less_equal", "greater_equal"})


def alternatives(step: SourceStep, values: Values, region: Region) -> Iterator[Alternative]:
    """Yield what an operation may have been meant to be."""
    if definitions.definition(step.kind) is None:
        return
    yield from _modes(step)
    for name, given in step.arguments.items():
        if isinstance(given, str) and is_constant(given, values, region):
            yield from _arguments(step, name, values[given], values, region)
    yield from other_weights(step, values, region)
    yield from _without(step, values, region)
    yield from _operations(step, region)


def _modes(step: SourceStep) -> Iterator[Alternative]:
    for name, now in step.settings.items():
        for word in definitions.words(step.kind) if isinstance(now, str) else ():
            if word != now:
                other = dataclasses.replace(step, settings={**step.settings, name: word})
                yield Alternative("attribute", f"{name} is {now} and should be {word}", other)


def _arguments(
    step: SourceStep, name: str, now: np.ndarray, values: Values, region: Region
) -> Iterator[Alternative]:
    """Yield an operation with another value of one argument that shapes its result."""
    if now.size > _FEW or not now.size or (now.dtype.kind == "f" and name not in
                                            definitions.NUMBERS):  # fmt: skip
        return
    x = step.arguments.get("x")
    shape = values[x].shape if isinstance(x, str) and x in values else ()
    rank = len(shape) or _RANK + 1
    seen = {now.tobytes()}
    for value in _others(name, now, rank, region):
        other = np.asarray(value, now.dtype)
        if other.tobytes() not in seen and _is_legal(name, other):
            seen.add(other.tobytes())
            text = f"{name} is {_shown(now)} and should be {_shown(other)}"
            alternative = with_constant(step, name, other, "attribute", text)
            if not _is_empty(alternative, values, shape):
                yield alternative


def _is_legal(name: str, value: np.ndarray) -> bool:
    """Say whether a kernel survives a value: not all check what they divide by."""
    if value.dtype.kind not in "iu":
        return True
    return name in _SIGNED or int(value.min()) > (-1 if name in _MAY_BE_0 else 0)


def _is_empty(other: Alternative, values: Values, shape: tuple[int, ...]) -> bool:
    """Say whether an operation slices nothing out of a tensor: kernels that read it may crash."""
    if other.step.kind not in ("slice_by_index", "slice_update"):
        return False

    def argument(name: str, usual: object) -> list[object]:
        given = other.step.arguments.get(name)
        found = other.constants.get(str(given), values.get(str(given)))
        return [usual] * len(shape) if found is None else list(found.reshape(-1).tolist())

    parts = zip(
        argument("begin", 0), argument("end", None), argument("stride", 1),
        argument("begin_mask", usual=False), argument("end_mask", usual=False),
        argument("squeeze_mask", usual=False), shape, strict=True,
    )  # fmt: skip
    return any(
        not (-size <= begin < size) if single
        else not step or not range(size)[None if low else begin : None if high else end : step]
        for begin, end, step, low, high, single, size in parts
    )  # fmt: skip


def _others(name: str, now: np.ndarray, rank: int, region: Region) -> Iterator[object]:
    numbers = region.scalars()
    if now.dtype.kind == "f":
        yield from numbers
        yield from definitions.NUMBERS[name]
    elif now.dtype == np.bool_:
        yield from (_with(now, place, not now.flat[place]) for place in range(now.size))
        if now.size > 1:
            yield ~now
    elif name in _ONE_AXIS:
        own = int(now.item())
        yield from (each for each in range(-rank, 0) if rank <= _RANK and each != own % rank - rank)
    elif name == "axes" and rank <= _RANK:
        yield from _choices(now, rank)
    elif name == "perm" and now.size <= _RANK:
        yield from itertools.permutations(range(now.size))
    else:
        yield from _near(now)
        for operation in region.operations:
            for _, value in operation.scalars:
                whole = value if isinstance(value, tuple) else (value,)
                count = len(whole)
                if count and now.size % count == 0 and all(isinstance(e, int) for e in whole):
                    yield np.repeat(whole, now.size // count).reshape(now.shape)


def _choices(now: np.ndarray, rank: int) -> Iterator[object]:
    """Yield every choice of axes, those of as many first."""
    own = {int(axis) % rank for axis in now.reshape(-1)}
    every = [c for n in range(1, rank + 1) for c in itertools.combinations(range(rank), n)]
    for choice in sorted(every, key=lambda each: abs(len(each) - len(own))):
        if set(choice) != own:
            yield [axis - rank for axis in choice]


def _near(now: np.ndarray) -> Iterator[np.ndarray]:
    for place, step in itertools.product(range(now.size), (1, -1)):
        yield _with(now, place, now.flat[place] + step)
    for first, second in itertools.combinations(range(min(now.size, _RANK)), 2):
        exchanged = _with(now, first, now.flat[second])
        yield _with(exchanged, second, now.flat[first])
    if now.size > 1:
        for place in range(now.size - 1):  # one more before, one less after
            for step in (1, -1):
                moved = _with(now, place, now.flat[place] + step)
                yield _with(moved, place + 1, now.flat[place + 1] - step)
    yield now + 1
    yield now - 1
    yield now * 2
    yield now // 2


def _with(now: np.ndarray, place: int, value: object) -> np.ndarray:
    other = now.copy()
    other.flat[place] = value
    return other


def _without(step: SourceStep, values: Values, region: Region) -> Iterator[Alternative]:
    """Yield what an operation reads in the place of its result: many a function of other numbers
    changes nothing either.
    """
    shape = values[step.results[0]].shape
    for given in step.arguments.values():
        if (
            isinstance(given, str)
            and given in values
            and values[given].shape == shape
            and not is_constant(given, values, region)
        ):
            nothing = dataclasses.replace(step, kind="identity", arguments={"x": given})
            yield Alternative("extra", "it should not be there", nothing)


def _operations(step: SourceStep, region: Region) -> Iterator[Alternative]:
    for kind in definitions.alike(step.kind):
        text = f"it is {step.kind} and should be {kind}"
        if {kind, step.kind} in _COMPARISONS:
            text += ", or its operands are swapped"
        given = {n: each for n, each in step.arguments.items() if definitions.takes(kind, n)}
        settings = {n: each for n, each in step.settings.items() if definitions.takes(kind, n)}
        plain = dataclasses.replace(step, kind=kind, arguments=given, settings=settings)
        missing = [n for n in definitions.required_numbers(kind) if n not in given]
        if len(missing) > 1:
            continue  # with several numbers, anything fits
        likely = [
            dict.fromkeys((*region.scalars(), *definitions.NUMBERS[name])) for name in missing
        ]
        for numbers in itertools.product(*likely):
            names = {n: f"{step.results[0]}{INSIDE}{n} of {kind}" for n in missing}
            constants = {
                names[n]: np.asarray(number, np.float32)
                for n, number in zip(missing, numbers, strict=True)
            }
            other = dataclasses.replace(plain, arguments={**given, **names})
            with_them = "".join(f", {n} {v:.6g}" for n, v in zip(missing, numbers, strict=True))
            yield Alternative("operator", text + with_them, other, constants)


def _shown(values: np.ndarray) -> str:
    if values.size == 1 and values.ndim == 0:
        value = values.item()
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return str(values.tolist())
