"""Measures how two tensors differ, in chunks: memory-mapped tensors stay on disk."""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.numpy_dtypes import dtype_name, without_bits
from convkit.worker.metrics.errors_by_scale import errors_by_scale
from convkit.worker.metrics.errors_for_any_rtol import Frontier

# Elements per chunk: the few float64 arrays derived from a chunk fit in the L2 cache.
_CHUNK = 1 << 15


def compare(
    output: str,
    reference: np.ndarray,
    candidate: np.ndarray,
    padding: np.ndarray | None = None,
    *,
    nan_agrees: bool = False,
) -> TensorMetrics:
    """Return how `candidate` differs from `reference`; both may be memory-mapped, of any contract
    dtype.

    Errors are absolute, over the elements that are finite on both sides. Sums use float64, and
    integers are subtracted exactly. Beyond the field descriptions:

    - If shape or dtype differ, nothing is compared: `mismatch` explains it, every figure is NaN.
      Empty tensors have the same figures, with zero elements.
    - An error below the smallest normal float32 (1.18e-38) is none, except in float64: kernels of
      some processors flush such numbers to zero, and kernels of others do not.
    - `max_rel` is |error| / |reference|; where the reference is 0, a zero error counts as 0 and any
      other error as infinity.
    - `cosine` is 1 for two zero vectors, and without any error, and 0 for a zero and a nonzero
      vector.
    - Equal infinities on both sides agree; any other infinity counts in `inf_mismatched`, also
      against NaN.
    - The worst element is the first that is NaN or a mismatched infinity, or else the one with
      the largest error.
    - `padding` is a boolean array whose shape is a prefix of the tensors'. True marks an element,
      or all elements below a leading index, as meaningless. Such elements are measured
      separately; NaN and infinities among them still count, but for NaN on both sides: a model
      may write it where there is nothing.
    - With `nan_agrees`, NaN on both sides agrees, as equal infinities do; NaN on one side counts.
    - Without an element that is finite on both sides, errors are 0 if all infinities agree,
      otherwise NaN.
    """
    mismatch = _mismatch(reference, candidate)
    if mismatch is not None or reference.size == 0:
        return _nothing_compared(output, *(mismatch or (None, None)))
    if reference.dtype.kind == "U":
        reference, candidate = as_float64(reference), as_float64(candidate)
    sums = _Sums(padding, reference.size, nan_agrees=nan_agrees)
    flat_reference, flat_candidate = _flat(reference), _flat(candidate)
    # Overflow to infinity and 0/0 are valid results here, and are counted.
    with np.errstate(all="ignore"):
        for start in range(0, reference.size, _CHUNK):
            stop = min(start + _CHUNK, reference.size)
            sums.add(start, flat_reference[start:stop], flat_candidate[start:stop])
    metrics = sums.metrics(output, reference, candidate)
    if reference.dtype != np.float32:
        return metrics
    by_scale = errors_by_scale(reference, candidate, padding, metrics.differing_max)
    return dataclasses.replace(metrics, by_scale=by_scale)


def largest_difference(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> float:
    """Return the largest absolute difference over all outputs of `reference`.

    Infinity if a shape, dtype or infinity differs or an output is missing; NaN if either side has
    NaN, so that no comparison with a limit passes; exactly 0.0 if every element is equal.
    """
    largest = 0.0
    for name, expected in reference.items():
        if name not in candidate:
            return math.inf
        if (error := _largest_error(expected, candidate[name])) is not None:
            largest = max(largest, error)
            continue
        metrics = compare(name, expected, candidate[name])
        if metrics.mismatch is not None:
            return math.inf
        if metrics.nan_reference or metrics.nan_candidate:
            return math.nan
        if metrics.inf_mismatched:
            return math.inf
        if metrics.elements:
            largest = max(largest, metrics.max_abs)
    return largest


def _largest_error(reference: np.ndarray, candidate: np.ndarray) -> float | None:
    """Return the largest absolute error of floats; None for other types, and if `compare` has more
    to say: the shapes or types differ, or a value is not finite.

    A model with many caches has hundreds of probes, which need nothing but this.
    """
    if reference.dtype.kind != "f" or _mismatch(reference, candidate) is not None:
        return None
    largest = 0.0
    flat_reference, flat_candidate = _flat(reference), _flat(candidate)
    with np.errstate(all="ignore"):
        for start in range(0, reference.size, _CHUNK):
            stop = min(start + _CHUNK, reference.size)
            expected = as_float64(flat_reference[start:stop])
            found = as_float64(flat_candidate[start:stop])
            error = _float_error(expected, found, is_double=_is_double(reference)).max()
            if not math.isfinite(error):  # NaN propagates through max
                return None
            largest = max(largest, float(error))
    return largest


def _dot(left: np.ndarray, right: np.ndarray) -> float:
    """Return the sum of products of two float64 vectors.

    Not with BLAS (`@`): its threads wait for those of a runtime that has just run a model, many
    times as long as the sum takes, and the last digits would depend on their number.
    """
    return float((left * right).sum())


class _Sums:
    """Sums accumulated over the chunks."""

    def __init__(self, padding: np.ndarray | None, size: int, *, nan_agrees: bool) -> None:
        self._padding = None if padding is None or not padding.any() else padding.reshape(-1)
        self._elements_each = 0 if padding is None else size // padding.size
        self.padding_elements = 0
        self.padding_max_abs = 0.0
        self.elements = 0
        self.compared = 0
        self.max_abs = -1.0
        self.max_rel = 0.0
        self.total = 0.0
        self.squares = 0.0
        self.reference_squares = self.reference_total = 0.0
        self.reference_low, self.reference_high = math.inf, -math.inf
        self.candidate_squares = 0.0
        self.products = 0.0
        self.equal = 0
        self.reference_max = self.differing_max = 0.0
        self.nan_reference = self.nan_candidate = 0
        self.nan_agreed = 0 if nan_agrees else None
        self.inf_reference = self.inf_candidate = self.inf_mismatched = 0
        self.worst = 0
        self.first_broken: int | None = None
        self.frontier = Frontier()

    def add(self, start: int, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Add a chunk whose first element has the flat index `start`."""
        exact_error = _integer_error(reference, candidate)
        expected, found = as_float64(reference), as_float64(candidate)
        error = exact_error
        if error is None:
            error = _float_error(expected, found, is_double=_is_double(reference))
        counted: np.ndarray | None = None  # the elements that the figures cover; None: all
        padded = self._padded(start, error.size)
        if not math.isfinite(error.max()):  # NaN propagates through max
            if padded is not None:  # where there is nothing, NaN on both sides agrees
                blank = padded & np.isnan(expected) & np.isnan(found)
                expected, found, error = (np.where(blank, 0.0, x) for x in (expected, found, error))
            counted = self._count_special(start, expected, found)
        counted = self._set_padding_aside(padded, error, counted)
        if counted is None:
            worst = int(error.argmax())
            self._add_worst(start + worst, float(error[worst]))
            self._add_finite(expected, found, error)
        elif counted.any():
            worst = int(np.where(counted, error, -1.0).argmax())
            self._add_worst(start + worst, float(error[worst]))
            self._add_finite(expected[counted], found[counted], error[counted])

    def _padded(self, start: int, count: int) -> np.ndarray | None:
        """Return which elements of a chunk are at padding; None if none are."""
        if self._padding is None:
            return None
        padded = self._padding[np.arange(start, start + count) // self._elements_each]
        return padded if padded.any() else None

    def _set_padding_aside(
        self, padded: np.ndarray | None, error: np.ndarray, counted: np.ndarray | None
    ) -> np.ndarray | None:
        """Measure the elements at padding separately; return which of the others count."""
        if padded is None:
            self.elements += error.size
            return counted
        aside = padded if counted is None else padded & counted
        self.padding_elements += int(padded.sum())
        self.padding_max_abs = max(self.padding_max_abs, float(error[aside].max(initial=0.0)))
        self.elements += error.size - int(padded.sum())
        return ~padded if counted is None else counted & ~padded

    def _count_special(self, start: int, expected: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Count NaN and infinities; return a mask of elements finite on both sides."""
        nan_expected, nan_found = np.isnan(expected), np.isnan(found)
        inf_expected, inf_found = np.isinf(expected), np.isinf(found)
        mismatched = (inf_expected | inf_found) & (expected != found)
        if self.nan_agreed is not None:
            agreed = nan_expected & nan_found
            self.nan_agreed += int(agreed.sum())
            nan_expected, nan_found = nan_expected & ~agreed, nan_found & ~agreed
        self.nan_reference += int(nan_expected.sum())
        self.nan_candidate += int(nan_found.sum())
        self.inf_reference += int(inf_expected.sum())
        self.inf_candidate += int(inf_found.sum())
        self.inf_mismatched += int(mismatched.sum())
        broken = np.flatnonzero(nan_expected | nan_found | mismatched)
        if broken.size and self.first_broken is None:
            self.first_broken = start + int(broken[0])
        finite: np.ndarray = np.isfinite(expected) & np.isfinite(found)
        return finite

    def _add_worst(self, index: int, error: float) -> None:
        if error > self.max_abs:
            self.max_abs, self.worst = error, index

    def _add_finite(self, expected: np.ndarray, found: np.ndarray, error: np.ndarray) -> None:
        magnitude = np.abs(expected)
        self.compared += error.size
        self.total += float(error.sum())
        self.squares += _dot(error, error)
        self.reference_squares += _dot(expected, expected)
        self.reference_total += float(expected.sum())
        self.reference_low = min(self.reference_low, float(expected.min()))
        self.reference_high = max(self.reference_high, float(expected.max()))
        self.candidate_squares += _dot(found, found)
        self.products += _dot(expected, found)
        self.equal += error.size - int(np.count_nonzero(error))
        self.reference_max = max(self.reference_max, float(magnitude.max()))
        differing = float(magnitude.max(where=error > 0, initial=0.0))
        self.differing_max = max(self.differing_max, differing)
        # 0/0 is NaN, which fmax ignores; an error against a reference of 0 is infinity.
        relative = float(np.fmax.reduce(error / magnitude))
        self.max_rel = max(self.max_rel, relative)
        self.frontier.add(magnitude, error)

    def metrics(self, output: str, reference: np.ndarray, candidate: np.ndarray) -> TensorMetrics:
        """Return the metrics accumulated over the whole tensors."""
        broken = self.first_broken is not None
        flat_index = self.worst if self.first_broken is None else self.first_broken
        index = tuple(int(i) for i in np.unravel_index(flat_index, reference.shape))
        if self.compared:
            max_abs, max_rel, mean_abs = self.max_abs, self.max_rel, self.total / self.compared
            rms, cosine = math.sqrt(self.squares / self.compared), self._cosine()
            agreement = self.equal / self.compared
            reference_rms = math.sqrt(self.reference_squares / self.compared)
            nrmse = _relative(rms, reference_rms)
            frontier = self.frontier.points()
        elif broken:
            max_abs = max_rel = mean_abs = rms = nrmse = cosine = math.nan
            agreement = reference_rms = math.nan
            frontier = ()
        else:  # only infinities, all equal
            max_abs = max_rel = mean_abs = rms = nrmse = 0.0
            cosine, frontier = 1.0, ((0.0, 0.0),)
            agreement, reference_rms = 1.0, math.nan
        return TensorMetrics(
            output=output,
            elements=self.elements,
            max_abs=max_abs,
            max_rel=max_rel,
            mean_abs=mean_abs,
            rms=rms,
            cosine=cosine,
            worst_index=index,
            worst_reference=float(as_float64(reference[index].reshape(1))[0]),
            worst_candidate=float(as_float64(candidate[index].reshape(1))[0]),
            nan_reference=self.nan_reference,
            nan_candidate=self.nan_candidate,
            inf_reference=self.inf_reference,
            inf_candidate=self.inf_candidate,
            inf_mismatched=self.inf_mismatched,
            frontier=frontier,
            padding_elements=self.padding_elements,
            padding_max_abs=self.padding_max_abs,
            agreement=agreement,
            reference_rms=reference_rms,
            reference_max=self.reference_max if self.compared else math.nan,
            nrmse=nrmse,
            differing_max=self.differing_max if self.compared else math.nan,
            reference_low=self.reference_low if self.compared else math.nan,
            reference_high=self.reference_high if self.compared else math.nan,
            reference_mean=self.reference_total / self.compared if self.compared else math.nan,
            nan_agreed=self.nan_agreed,
        )

    def _cosine(self) -> float:
        no_error = self.squares == 0.0 and self.first_broken is None
        if no_error or (self.reference_squares == 0.0 and self.candidate_squares == 0.0):
            return 1.0
        norms = math.sqrt(self.reference_squares) * math.sqrt(self.candidate_squares)
        if norms == 0.0:
            return 0.0
        cosine = self.products / norms
        return cosine if math.isnan(cosine) else max(-1.0, min(1.0, cosine))


_MismatchKind = Literal["dtype", "shape"]


def _mismatch(reference: np.ndarray, candidate: np.ndarray) -> tuple[_MismatchKind, str] | None:
    names = dtype_name(reference.dtype), dtype_name(candidate.dtype)
    if names[0] != names[1]:
        return "dtype", f"dtype {names[1]}; the original's is {names[0]}"
    if reference.shape != candidate.shape:
        shapes = list(reference.shape), list(candidate.shape)
        return "shape", f"shape {shapes[1]}; the original's is {shapes[0]}"
    return None


def _nothing_compared(
    output: str, kind: _MismatchKind | None, mismatch: str | None
) -> TensorMetrics:
    nan = math.nan
    return TensorMetrics(
        output=output,
        elements=0,
        max_abs=nan,
        max_rel=nan,
        mean_abs=nan,
        rms=nan,
        cosine=nan,
        worst_index=(),
        worst_reference=nan,
        worst_candidate=nan,
        nan_reference=0,
        nan_candidate=0,
        inf_reference=0,
        inf_candidate=0,
        inf_mismatched=0,
        mismatch=mismatch,
        mismatch_kind=kind,
    )


def _relative(error: float, magnitude: float) -> float:
    """Return an error in parts of a magnitude; any error in an output of zeros is infinite."""
    if magnitude == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / magnitude


def _is_double(array: np.ndarray) -> bool:
    return array.dtype == np.float64


def _float_error(expected: np.ndarray, found: np.ndarray, *, is_double: bool) -> np.ndarray:
    """Return |found - expected| of values in float64, with differences of denormals as 0; NaN and
    infinity stay.
    """
    error: np.ndarray = np.abs(found - expected)
    if not is_double:
        error[error < SMALLEST_NORMAL] = 0.0
    return error


def _flat(array: np.ndarray) -> np.ndarray:
    """Return the elements in row-major order, without copying contiguous arrays."""
    return np.asarray(array).reshape(-1)


def _integer_error(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray | None:
    """Return |candidate - reference| of native integers exactly; None for other types.

    In modular 64-bit arithmetic, larger minus smaller is correct for every pair, signed or not.
    """
    if reference.dtype.kind not in "iu":
        return None
    larger, smaller = np.maximum(reference, candidate), np.minimum(reference, candidate)
    return (larger.astype(np.uint64) - smaller.astype(np.uint64)).astype(np.float64)


def _codes(texts: np.ndarray) -> np.ndarray:
    """Return numbers that float64 holds exactly: the first 48 bits of each text's digest."""
    distinct, places = np.unique(texts, return_inverse=True)
    codes = [
        int.from_bytes(hashlib.sha256(str(text).encode()).digest()[:6], "big") for text in distinct
    ]
    return np.array(codes, dtype=np.float64)[places].reshape(texts.shape)


def as_float64(values: np.ndarray) -> np.ndarray:
    """Return the values as float64, including bfloat16 stored as bits. A text becomes a number that
    only equal texts share.
    """
    if values.dtype.kind == "U":
        return _codes(values)
    return without_bits(values).astype(np.float64)
