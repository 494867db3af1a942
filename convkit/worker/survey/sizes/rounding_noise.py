"""How much rounding alone changes a file's outputs: no tolerance can be tighter than that."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from convkit.protocol.contract import Contract, is_whole
from convkit.protocol.messages import Rounding, Sample
from convkit.worker.cases.axis_sizes import largest_sizes
from convkit.worker.cases.values.sampled_values import Draw, draw_inputs, generator
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.perturbed_weights import Values, moved
from convkit.worker.survey.sizes.size_trials import FileTrials, Trials

_CASES = ("example", "other", "third", "fourth")
# Samples of whole numbers, which are exact in every type: an index does not round to another.
_WHOLE = frozenset({"integers", "one_of", "token_ids", "positions", "padding_mask"})
# By how much two correct kernels that add in another order may differ, in units in the last place.
_UNITS = 8
# A decision changes few elements, by so much of their RMS; rounding changes the rest by less.
_FEW, _JUMP, _ROUNDED = 0.25, 1e-2, 1e-4
# Whole numbers that rounding changes by one, or by less than this share of their own, count
# something (microseconds): a small difference is a small error. Labels and indices change by more.
_COUNTED = 1e-4
_SECONDS = 5.0  # after which no further run is begun


@dataclasses.dataclass(frozen=True)
class RoundingDecides:
    """What rounding alone decides, by output. `flips`: of labels and indices the share that
    changes, of outputs of fractions in which some elements change by far more than rounding, such
    as boxes in the order of their scores, the RMS of the change relative to their own. `counted`:
    the share of their own by which whole numbers that count something change, beyond one.
    `rounding`: by how much each output of fractions changes, per unit in the last place.
    """

    flips: dict[str, float]
    counted: dict[str, float]
    rounding: dict[str, Rounding]


def rounding_errors(
    contract: Contract,
    samples: Mapping[str, Sample],
    trials: FileTrials,
    with_moved_weights: Callable[[Values], Values] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Rounding]:
    """Return by how much each output of fractions changes, at most, when every input is moved to
    the next number of its type: what two correct runtimes may differ by at least. At typical and
    largest sizes; empty if nothing is moved: no input has fractions, and there is no run
    `with_moved_weights`.

    A logarithm of nearly nothing, or a difference of nearly equal numbers, multiplies rounding.
    """
    found: dict[str, Rounding] = {}
    end = clock() + _SECONDS
    for case, sizes in itertools.product(
        _CASES, (contract.typical_sizes(), largest_sizes(contract))
    ):
        given = at_full_length(contract.inputs, samples, sizes)
        feeds = draw_inputs(contract, given, sizes, 0, facts=ModelFacts(), draw=Draw(case))
        steady = all(values.dtype.kind != "f" for values in feeds.values())
        if clock() > end or (steady and with_moved_weights is None):
            break
        near = {
            name: values if samples[name].kind in _WHOLE else _neighbors(name, values, case)
            for name, values in feeds.items()
        }
        try:
            pair = trials.outputs(feeds), (with_moved_weights or trials.outputs)(near)
        except RunFailedError:  # of this case: the others tell
            continue
        for name, change in _changes(*pair):
            found[name] = change.or_more(found.get(name))
    return found


def _changes(one: Values, other: Values) -> Iterator[tuple[str, Rounding]]:
    """Yield how each output of fractions changes; none for rows that come and go."""
    for name, values in one.items():
        if values.dtype.kind == "f" and values.shape == other[name].shape:
            first, second = values.astype(np.float64), other[name].astype(np.float64)
            finite = np.isfinite(first) & np.isfinite(second)
            first, second = np.where(finite, first, 0.0), np.where(finite, second, 0.0)
            lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
            yield (
                name,
                Rounding(
                    float(np.abs(first - second).max(initial=0.0)),
                    float(np.vdot(first, second)) / lengths if lengths else 1.0,
                ),
            )


def _neighbors(name: str, values: np.ndarray, case: str) -> np.ndarray:
    """Return each number's neighbor, above or below at random; whole numbers and texts as they
    are.
    """
    if values.dtype.kind != "f":
        return values
    above = generator(0, case, name, "rounding").integers(0, 2, size=values.shape).astype(bool)
    toward = np.where(above, np.inf, -np.inf).astype(values.dtype)
    return np.asarray(np.nextafter(values, toward))


def decided_by_rounding(
    contract: Contract,
    samples: Mapping[str, Sample],
    trials: Trials,
    clock: Callable[[], float] = time.monotonic,
) -> RoundingDecides:
    """Return what changes when every input of fractions, and weights where `trials` can move them,
    are moved by a few units in the last place. At typical and largest sizes. Empty if nothing is
    moved.
    """
    flips: dict[str, float] = {}
    shares: dict[str, float] = {}
    largest: dict[str, float] = {}
    rounding: dict[str, Rounding] = {}
    for one, other in _runs_nearby(contract, samples, trials, clock):
        for name, change in _changes(
            one, {name: other.get(name, each) for name, each in one.items()}
        ):
            each = Rounding(change.largest / _UNITS, change.cosine)
            rounding[name] = each.or_more(rounding.get(name))
        for spec in contract.outputs:
            name = spec.name
            if not (name in one and one[name].shape == other[name].shape and one[name].size):
                continue
            if not is_whole(spec.dtype):
                if (share := _decided(one[name], other[name])) > 0:
                    flips[name] = max(share, flips.get(name, 0.0))
                continue
            flips[name] = max(float((one[name] != other[name]).mean()), flips.get(name, 0.0))
            if one[name].dtype.kind not in "iu":
                continue
            left, right = one[name].astype(np.float64), other[name].astype(np.float64)
            beyond = np.maximum(np.abs(left - right) - 1, 0) / np.maximum(np.abs(left), 1)
            shares[name] = max(float(beyond.max()), shares.get(name, 0.0))
            largest[name] = max(float(np.abs(left).max()), largest.get(name, 0.0))
    counted = {
        name: share
        for name, share in shares.items()
        if flips[name] and share <= _COUNTED and largest[name] >= 1 / _COUNTED
    }
    flipped = {name: share for name, share in flips.items() if name not in counted}
    return RoundingDecides(flipped, counted, rounding)


def _runs_nearby(
    contract: Contract, samples: Mapping[str, Sample], trials: Trials, clock: Callable[[], float]
) -> Iterator[tuple[Values, Values]]:
    """Yield the outputs of each case, and those with everything moved by a few units."""
    end = clock() + _SECONDS
    for case, sizes in itertools.product(
        _CASES, (contract.typical_sizes(), largest_sizes(contract))
    ):
        given = at_full_length(contract.inputs, samples, sizes)
        feeds = trials.drawn(contract.inputs, given, sizes, Draw(case))
        steady = all(values.dtype.kind != "f" for values in feeds.values())
        if clock() > end or not trials.has_time(2) or (steady and not trials.moves_weights):
            break
        near = {
            name: values if samples[name].kind in _WHOLE else moved(name, values, case, _UNITS)
            for name, values in feeds.items()
        }
        one, other = trials.values(feeds), trials.values_nearby(near, case)
        if one is not None and other is not None:  # of this case: the others tell
            yield one, other


def _decided(one: np.ndarray, other: np.ndarray) -> float:
    """Return the RMS of a change relative to that of the values, if a few elements make it: more
    than rounding changes most of them. 0 otherwise.
    """
    if one.dtype.kind != "f":
        return 0.0
    left, right = one.astype(np.float64), other.astype(np.float64)
    scale = float(np.sqrt(np.square(left).mean()))
    change = np.abs(left - right)
    if not np.isfinite(change).all() or not scale:
        return 0.0
    few = not float(np.quantile(change, 1 - _FEW)) > _ROUNDED * scale
    jumps = float(change.max()) > _JUMP * scale
    return float(np.sqrt(np.square(change).mean())) / scale if few and jumps else 0.0
