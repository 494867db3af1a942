"""Finds out whether a built model is wrong because it prepares its input in another way.

The input is prepared in other common ways until the outputs agree with the original's.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import CaseMetrics, is_usual
from convkit.protocol.preprocessing_constants import ImageConstants
from convkit.worker.cases.case import Feeds
from convkit.worker.metrics.row_sets import largest_output_difference
from convkit.worker.runtime_interface.sessions import RunFailedError

# Outputs this close are right, or as near as a low precision gets: nothing is searched.
_CLOSE = 0.9999
# A preparation is the cause if it leaves so much of the error.
_EXPLAINED = 0.05
_HALF = (0.5, 0.5, 0.5)
# The ways in which most models are trained: no processor applies others by default.
_COMMON = (
    ImageConstants(),
    ImageConstants(scale=1 / 255),
    ImageConstants(scale=1 / 255, mean=_HALF, std=_HALF),
    ImageConstants(scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    ImageConstants(
        scale=1 / 255,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
    ),
)


@dataclasses.dataclass(frozen=True)
class _Preparation:
    """Another way to prepare an input: how, and what it says about the graph."""

    how: str
    meaning: str
    apply: Callable[[np.ndarray], np.ndarray]


def preparation_cause(
    contract: Contract,
    run: Callable[[Feeds], Feeds],
    cases: Sequence[CaseMetrics],
    feeds_of: Callable[[str], Feeds],
    expected_of: Callable[[str], Feeds],
) -> list[Finding]:
    """Return C528 if the outputs agree with another preparation of an image input."""
    images = [spec for spec in contract.inputs if spec.preprocess and spec.preprocess.image]
    far = [
        case.case
        for case in cases
        if is_usual(case.case) and any(not output.cosine >= _CLOSE for output in case.outputs)
    ]
    if not images or not far:
        return []
    feeds, expected = feeds_of(far[0]), expected_of(far[0])

    def error(changed: Feeds) -> float:
        try:
            found = largest_output_difference(contract, expected, run(changed))
        except RunFailedError:
            return np.inf
        return np.inf if np.isnan(found) else found

    before = error(feeds)
    for spec in images:
        tried = [
            (error({**feeds, spec.name: each.apply(feeds[spec.name])}), place, each)
            for place, each in enumerate(_preparations(spec))
        ]
        after, _, best = min(tried)
        if after < before and after <= _EXPLAINED * before:
            return [_finding(spec, best, far[0], before, after)]
    return []


def _preparations(spec: TensorSpec) -> Iterator[_Preparation]:
    assert spec.preprocess is not None
    constants = spec.preprocess.image
    assert constants is not None
    last = spec.preprocess.fused or constants.layout == "channels_last"
    axis = -1 if last else 1
    yield _Preparation(
        "with red and blue swapped",
        "the graph expects the opposite order of channels",
        lambda values: _exchanged(values, axis),
    )
    rows, columns = (1, 2) if last else (2, 3)
    if spec.shape[rows] == spec.shape[columns]:
        yield _Preparation(
            "with rows and columns swapped",
            "the graph reads images transposed",
            lambda values: np.ascontiguousarray(values.swapaxes(rows, columns)),
        )
    if spec.preprocess.fused:
        return
    for common in _COMMON:
        if np.allclose(common.factors, constants.factors) and np.allclose(
            common.offsets, constants.offsets
        ):
            continue
        for exchanged in (False, True):
            how = f"with {_values_text(common)}" + (", red and blue swapped" * exchanged)
            apply = _other(constants, common, axis, exchanged=exchanged)
            yield _Preparation(how, _meaning(constants, common), apply)


def _other(
    constants: ImageConstants, common: ImageConstants, axis: int, *, exchanged: bool
) -> Callable[[np.ndarray], np.ndarray]:
    def apply(values: np.ndarray) -> np.ndarray:
        shape = [3 if place == axis % values.ndim else 1 for place in range(values.ndim)]
        factors, offsets = (
            np.reshape(each, shape) for each in (constants.factors, constants.offsets)
        )
        pixels = (values.astype(np.float64) - offsets) / factors
        factors, offsets = (np.reshape(each, shape) for each in (common.factors, common.offsets))
        made = (pixels * factors + offsets).astype(values.dtype)
        return _exchanged(made, axis) if exchanged else made

    return apply


def _exchanged(values: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.flip(values, axis))


def _values_text(constants: ImageConstants) -> str:
    if constants.scale == 1.0:
        return "values from 0 to 255"
    if not constants.mean:
        return "values from 0 to 1, without mean and std"
    listed = (
        f"[{', '.join(f'{each:g}' for each in values)}]"
        for values in (constants.mean, constants.std)
    )
    return "mean {} and std {}".format(*listed)


def _meaning(declared: ImageConstants, right: ImageConstants) -> str:
    """Return what it says about the graph that another preparation is right."""
    if not right.mean and declared.mean:
        steps = "subtracts mean and divides by std"
        if right.scale == 1.0 and declared.scale != 1.0:
            steps = "divides by 255, " + steps
        return f"the graph {steps} itself, so these steps are done twice"
    if right.scale == 1.0 and declared.scale != 1.0:
        return "the graph divides by 255 itself, so that is done twice"
    if right.mean and not declared.mean:
        return "these steps are missing"
    return "the graph expects different constants"


def _finding(
    spec: TensorSpec, best: _Preparation, case: str, before: float, after: float
) -> Finding:
    return Finding(
        "C528",
        f"{spec.name!r}: prepared {best.how}, the built model agrees with the original: the"
        f" largest error falls from {before:.3g} to {after:.3g}. So {best.meaning}.",
        Place(tensor=spec.name, case=case),
        {"proven": True, "before": before, "after": after, "preparation": best.how},
        Remedy(
            f"Prepare {spec.name} {best.how}, or export the model without its own preprocessing."
        ),
    )
