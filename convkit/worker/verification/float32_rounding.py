"""Whether float32's rounding alone explains a case that failed.

The proof is a run of both the original and the converted model, a graph or a program, in float64.
If they agree there, the model computes what the original computes; how far the original's own
float32 outputs are from its float64 ones is what float32 can resolve. A model with a wrong
operator, however small its effect, differs in float64, too.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import is_at_decisions, is_of_plain_rows
from convkit.worker.cases.equal_scores import differing
from convkit.worker.metrics.errors_by_scale import largest_in_units
from convkit.worker.original.float64_mode import run_in_float64
from convkit.worker.original.torch_dtypes import to_arrays
from convkit.worker.original.unsteady_mode import Unsteady, moved, reads_numbers_alone
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.ties import element_text

# Runs on inputs next to the case's, in units of the last place: one run may round luckily.
_NEAR = ((-97, 61), (53, -89))
# The most that graph and original may differ in float64, in parts of float32's own rounding. An
# exporter rounds what it folds: a batch norm in a convolution's weights takes 0.2 of it.
_AGREES = 0.5
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class _Distance:
    """A largest difference: in the output's unit, and in units of float32 at an element's scale."""

    absolute: float
    units: float

    def larger(self, other: "_Distance") -> "_Distance":
        return _Distance(max(self.absolute, other.absolute), max(self.units, other.units))


def rounding_finding(
    case: TorchCase,
    name: str,
    converted: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    noun: str = "graph",
) -> Finding | None:
    """Return N508 if a converted model differs from its original by nothing but float32's rounding
    in a case; None if it does, or if nothing proves it. `converted` computes outputs in float64.

    Its evidence has, per float output, `resolved`: the largest difference between the original in
    float32 and in float64, in the output's unit, and `units`: the same in units in the last place
    of float32 at the scale of each element, which is what the model and the original, both in
    float64, are judged by; `float64` is how far these two differ, in the output's unit.
    """
    outputs = tuple(spec.name for spec in case.module.contract.outputs)
    feeds = {given: tensor.numpy() for given, tensor in case.inputs.items()}
    try:
        exact = run_in_float64(case.module, case.inputs, outputs)
        computed = converted(feeds)
        inside = is_of_plain_rows(name) or reads_numbers_alone(case.module, case.inputs.values())
        resolved = _resolved(case, outputs, exact, inside=inside)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - either may raise anything in a type it was not made for
        return None
    parted = {each: _distance(exact[each], computed[each]) for each in resolved}
    if not resolved or any(
        not parted[each].units <= _AGREES * resolved[each].units for each in resolved
    ):
        return None
    others = [each for each in outputs if each not in resolved]
    if not all(np.array_equal(exact[each], computed[each]) for each in others):
        return None
    return _finding(name, resolved, parted, _decided(case, outputs, exact), noun)


def _decided(
    case: TorchCase, outputs: tuple[str, ...], exact: Mapping[str, np.ndarray]
) -> str | None:
    """Return an element that float32 alone decides otherwise than float64, with its input's value;
    None if there is none.
    """
    single = case.returned()
    for output in outputs:
        if (off := differing(exact[output], single[output])).any():
            return element_text(case, off, single[output], exact[output], output)
    return None


def _resolved(
    case: TorchCase, outputs: tuple[str, ...], exact: Mapping[str, np.ndarray], *, inside: bool
) -> dict[str, _Distance]:
    """Return how far float32 is from float64 in each float output, at the inputs and weights and
    near them: zeros have no neighbors in units of their own, and a sum of equal numbers may round
    luckily. `inside`: results of the model's operations are moved, too, for plain rows and where
    inputs cannot be.
    """
    floats = [each for each in outputs if exact[each].dtype == np.float64]
    found = dict.fromkeys(floats, _Distance(0.0, 0.0))
    for steps in (None, *_NEAR):
        inputs = {
            given: tensor if steps is None else moved(tensor, steps)
            for given, tensor in case.inputs.items()
        }
        with torch.no_grad(), _moved_weights(case.module, steps):
            single = to_arrays(outputs, case.module(*(each.clone() for each in inputs.values())))
            double = exact if steps is None else run_in_float64(case.module, inputs, outputs)
        for each in floats:
            found[each] = found[each].larger(_distance(double[each], single[each]))
    if inside:
        with torch.no_grad(), Unsteady():
            single = to_arrays(
                outputs, case.module(*(each.clone() for each in case.inputs.values()))
            )
        for each in floats:
            found[each] = found[each].larger(_distance(exact[each], single[each]))
    return found


@contextlib.contextmanager
def _moved_weights(module: torch.nn.Module, steps: tuple[int, int] | None) -> Iterator[None]:
    """Move a module's float32 weights and buffers, inside the block; None leaves them."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        if steps is not None:
            for each in (*module.parameters(), *module.buffers()):
                kept.append((each, each.data))
                each.data = moved(each.data, steps)
        yield
    finally:
        for each, values in kept:
            each.data = values


def _distance(one: np.ndarray, other: np.ndarray) -> _Distance:
    """Return the largest difference; infinity for different shapes or non-finite elements, except
    where the second is infinite because float32 ends before the first.
    """
    if one.shape != other.shape:
        return _Distance(math.inf, math.inf)
    other = other.astype(np.float64)
    is_beyond = np.isinf(other) & (np.abs(one) > _LARGEST) & (np.sign(one) == np.sign(other))
    one, other = np.where(is_beyond, 0.0, one), np.where(is_beyond, 0.0, other)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return _Distance(math.inf, math.inf)
    return _Distance(float(np.abs(one - other).max(initial=0.0)), largest_in_units(one, other))


def _finding(
    case: str,
    resolved: Mapping[str, _Distance],
    parted: Mapping[str, _Distance],
    decided: str | None,
    noun: str,
) -> Finding:
    output = max(resolved, key=lambda each: resolved[each].absolute)
    remedy = (
        "Nothing is wrong: these are values at which the model decides. If they are yours, decide"
        " with a margin, or round before comparing."
        if is_at_decisions(case)
        else "Nothing is wrong. If such inputs matter to you, compute differences of large values"
        " differently, or in float64."
    )
    shown = f". In float64, {decided}" if decided is not None and is_at_decisions(case) else ""
    return Finding(
        "N508",
        f"case {case!r} is judged by what float32 resolves there: the original in float32 is up to"
        f" {resolved[output].absolute:.2g} from itself in float64 ({output!r}), where the {noun}"
        f" and the original differ by {parted[output].absolute:.2g}{shown}",
        Place(tensor=output, case=case),
        {
            "resolved": {each: distance.absolute for each, distance in resolved.items()},
            "units": {each: distance.units for each, distance in resolved.items()},
            "float64": {each: distance.absolute for each, distance in parted.items()},
        },
        Remedy(remedy),
    )
