import math
import sys
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from convkit.protocol.contract import DTYPES
from convkit.protocol.numpy_dtypes import DTypeUnavailableError, dtype_name, numpy_dtype
from convkit.worker.metrics.tensor_metrics import compare, largest_difference

numbers = st.floats(-1e6, 1e6, width=32)
vectors = hnp.arrays(np.float32, st.integers(1, 300), elements=numbers)
pairs = st.integers(1, 300).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float32, n, elements=numbers), hnp.arrays(np.float32, n, elements=numbers)
    )
)


def excess(metrics, rtol):
    return max(error - rtol * magnitude for magnitude, error in metrics.frontier)


@given(pairs, st.lists(st.floats(0, 1e3), min_size=1, max_size=5))
def test_frontier_gives_the_allclose_excess_of_every_rtol(pair, rtols):
    reference, candidate = (array.astype(np.float64) for array in pair)
    metrics = compare("y", *pair)
    for rtol in [0.0, *rtols]:
        exact = float((np.abs(candidate - reference) - rtol * np.abs(reference)).max())
        assert math.isclose(
            excess(metrics, rtol), exact, rel_tol=1e-12, abs_tol=1e-9 * max(1.0, rtol)
        )


@pytest.mark.parametrize(
    "shape", ["noise", "proportional", "constant", "concave", "zeros", "equal"]
)
def test_frontier_over_many_chunks(shape):
    random = np.random.default_rng(0)
    reference = random.normal(size=200_000)
    candidate = {
        "noise": reference + random.normal(size=reference.size) * 1e-6,
        "proportional": reference * 2,
        "constant": np.abs(reference),
        "concave": reference + np.sqrt(np.abs(reference)),
        "zeros": reference * random.integers(0, 2, reference.size),
        "equal": reference.copy(),
    }[shape]
    if shape == "constant":
        reference = np.ones_like(reference)
    metrics = compare("y", reference, candidate)
    for rtol in (0.0, 1e-9, 1e-6, 1e-3, 0.3, 1.0, 7.0):
        exact = float((np.abs(candidate - reference) - rtol * np.abs(reference)).max())
        assert excess(metrics, rtol) == pytest.approx(exact, rel=1e-12, abs=1e-15)


@given(pairs)
def test_figures_match_a_plain_computation(pair):
    reference, candidate = (array.astype(np.float64) for array in pair)
    error = np.abs(candidate - reference)
    if pair[0].dtype != np.float64:
        error[error < np.finfo(np.float32).tiny] = 0  # see test_denormal_errors.py
    metrics = compare("y", *pair)
    assert metrics.elements == reference.size
    assert metrics.max_abs == error.max()
    assert metrics.mean_abs == pytest.approx(error.mean(), rel=1e-9, abs=1e-30)
    assert metrics.rms == pytest.approx(math.sqrt((error**2).mean()), rel=1e-9, abs=1e-30)
    assert error[metrics.worst_index] == error.max()
    assert metrics.worst_reference == reference[metrics.worst_index]
    assert metrics.worst_candidate == candidate[metrics.worst_index]
    with np.errstate(all="ignore"):
        relative = np.where(error == 0, 0.0, error / np.abs(reference))
    assert metrics.max_rel == pytest.approx(relative.max(), rel=1e-9)


@given(vectors)
def test_a_tensor_equals_itself(values):
    metrics = compare("y", values, values.copy())
    assert metrics.max_abs == metrics.max_rel == metrics.rms == metrics.mean_abs == 0.0
    assert metrics.cosine == pytest.approx(1.0)
    assert largest_difference({"y": values}, {"y": values.copy()}) == 0.0


def test_nan_is_counted_on_either_side_and_is_the_worst():
    reference = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]], np.float32)
    candidate = np.array([[1.0, 2.0, 3.5], [np.nan, 5.0, 6.0]], np.float32)
    metrics = compare("y", reference, candidate)
    assert (metrics.nan_reference, metrics.nan_candidate) == (1, 1)
    assert metrics.max_abs == 0.5  # over what is finite on both sides
    assert metrics.worst_index == (0, 1)
    assert math.isnan(metrics.worst_reference)
    assert math.isnan(largest_difference({"y": reference}, {"y": candidate}))


def test_nan_everywhere_leaves_no_figure_that_a_limit_could_accept():
    metrics = compare("y", np.ones(4, np.float32), np.full(4, np.nan, np.float32))
    assert metrics.nan_candidate == 4
    assert metrics.frontier == ()
    for value in (metrics.max_abs, metrics.max_rel, metrics.mean_abs, metrics.rms, metrics.cosine):
        assert math.isnan(value)


def test_equal_infinities_agree_and_others_do_not():
    inf = np.inf
    same = compare("y", np.array([inf, -inf, 1.0]), np.array([inf, -inf, 1.0]))
    assert (same.inf_reference, same.inf_candidate, same.inf_mismatched) == (2, 2, 0)
    assert same.max_abs == 0.0
    other = compare("y", np.array([inf, 1.0, inf, inf]), np.array([-inf, inf, 1.0, np.nan]))
    assert (
        other.inf_reference,
        other.inf_candidate,
        other.inf_mismatched,
        other.nan_candidate,
    ) == (3, 2, 4, 1)
    only = compare("y", np.array([inf]), np.array([inf]))
    assert (only.max_abs, only.cosine, only.frontier) == (0.0, 1.0, ((0.0, 0.0),))
    assert largest_difference({"y": np.array([1.0])}, {"y": np.array([inf])}) == inf


def test_a_reference_of_zero_makes_any_error_infinite_relatively():
    assert compare("y", np.zeros(3), np.zeros(3)).max_rel == 0.0
    assert compare("y", np.array([0.0, 1.0]), np.array([1e-9, 1.0])).max_rel == math.inf


def test_cosine_of_zero_vectors():
    assert compare("y", np.zeros(3), np.zeros(3)).cosine == 1.0
    assert compare("y", np.zeros(3), np.ones(3)).cosine == 0.0
    assert compare("y", np.ones(3), -np.ones(3)).cosine == pytest.approx(-1.0)


def test_mismatches_and_empty_tensors_compare_nothing():
    shape = compare("y", np.ones((2, 3)), np.ones((3, 2)))
    assert shape.mismatch is not None
    assert "shape [3, 2]" in shape.mismatch
    assert math.isnan(shape.max_abs)
    dtype = compare("y", np.ones(3, np.float32), np.ones(3))
    assert dtype.mismatch == "dtype float64; the original's is float32"
    empty = compare("y", np.ones((0, 3)), np.ones((0, 3)))
    assert empty.elements == 0
    assert empty.mismatch is None
    assert math.isnan(empty.max_abs)
    assert largest_difference({"y": np.ones(3)}, {}) == math.inf
    assert largest_difference({"y": np.ones(3)}, {"y": np.ones(4)}) == math.inf


def test_whole_numbers_are_subtracted_exactly():
    big = 2**62
    metrics = compare("y", np.array([big, -big, 7]), np.array([big + 1, -big, 7]))
    assert metrics.max_abs == 1.0
    assert compare("y", np.array([-(2**63)]), np.array([2**63 - 1])).max_abs == pytest.approx(
        2.0**64
    )
    assert compare("y", np.array([250], np.uint8), np.array([3], np.uint8)).max_abs == 247
    assert compare("y", np.array([True, False]), np.array([True, True])).max_abs == 1.0


def test_half_precision_types(tmp_path: Path):
    reference = np.array([1.0, 2.0, 3.0], ml_dtypes.bfloat16)
    candidate = np.array([1.0, 2.0, 3.5], ml_dtypes.bfloat16)
    assert compare("y", reference, candidate).max_abs == 0.5
    np.save(tmp_path / "bits.npy", reference.view("V2"))
    bits = np.load(tmp_path / "bits.npy", mmap_mode="r")
    assert dtype_name(bits.dtype) == "bfloat16"
    assert compare("y", bits, candidate).max_abs == 0.5
    overflow = compare("y", np.array([1e5], np.float32).astype(np.float64), np.array([np.inf]))
    assert overflow.inf_mismatched == 1
    assert (
        compare("y", np.array([65504], np.float16), np.array([-65504], np.float16)).max_abs
        == 131008
    )


def test_memory_maps_are_read_in_chunks(tmp_path: Path):
    shape = (10, 1024, 1024)  # 40 MiB each, sparse on disk
    paths = [tmp_path / "reference.npy", tmp_path / "candidate.npy"]
    for path in paths:
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape).flush()
    maps = [np.load(path, mmap_mode="r+") for path in paths]
    maps[1][7, 5, 3] = 2.0
    tracemalloc.start()
    metrics = compare("y", *maps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert metrics.max_abs == 2.0
    assert metrics.worst_index == (7, 5, 3)
    assert peak < 8 * 2**20


def test_scalars_compare():
    metrics = compare("loss", np.array(1.0), np.array(1.5))
    assert (metrics.elements, metrics.worst_index, metrics.max_abs) == (1, (), 0.5)


def test_every_dtype_of_the_contract_has_a_numpy_type_and_back():
    for dtype in DTYPES:
        assert dtype_name(numpy_dtype(dtype)) == dtype


def test_without_ml_dtypes_the_message_says_what_to_add(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeUnavailableError, match="add ml_dtypes to the recipe's tools"):
        numpy_dtype("bfloat16")
    assert numpy_dtype("float16") == np.float16


def test_padding_is_measured_apart_and_leaves_every_figure_alone() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(3, 5, 7)).astype(np.float32)
    candidate = reference + rng.normal(scale=1e-3, size=reference.shape).astype(np.float32)
    padding = np.zeros((3, 5), bool)
    padding[1, 3:] = padding[2, 1:] = True
    kept = compare("y", reference[~padding], candidate[~padding])
    far = candidate.copy()
    far[padding] += 100.0
    metrics = compare("y", reference, far, padding)
    assert metrics.elements == kept.elements
    assert metrics.padding_elements == int(padding.sum()) * 7
    assert metrics.padding_max_abs > 99.0
    for name in ("max_abs", "max_rel", "mean_abs", "rms", "cosine"):
        assert getattr(metrics, name) == pytest.approx(getattr(kept, name), rel=1e-12)
    assert metrics.frontier == kept.frontier
    assert not padding[metrics.worst_index[:2]]


def test_nan_at_padding_still_counts() -> None:
    reference, candidate = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    candidate[1, 2] = np.nan
    metrics = compare(
        "y", reference, candidate, np.array([[False, False, False], [False, False, True]])
    )
    assert metrics.nan_candidate == 1
    assert metrics.worst_index == (1, 2)


def test_padding_everywhere_compares_nothing() -> None:
    metrics = compare(
        "y", np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32), np.ones((2, 3), bool)
    )
    assert metrics.elements == 0


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0),
        ([3.0, 4.0], [6.0, 8.0], 1.0),
        ([3.0, 4.0], [0.0, 0.0], 1.0),
        ([300.0, 400.0], [303.0, 404.0], 0.01),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1e-9], math.inf),
        ([1.0, 2.0], [1.0, math.nan], 0.0),
    ],
)
def test_nrmse_is_the_error_in_parts_of_the_reference(
    reference: list[float], candidate: list[float], expected: float
) -> None:
    metrics = compare("y", np.array(reference), np.array(candidate))
    assert metrics.nrmse == pytest.approx(expected)


def test_nrmse_of_nothing_finite_is_unknown() -> None:
    assert math.isnan(compare("y", np.array([1.0]), np.array([math.nan])).nrmse)


def test_texts_agree_where_they_are_equal():
    one, other = np.array(["rose", "lily", "rose"]), np.array(["rose", "a longer text", "rose"])
    assert dtype_name(one.dtype) == dtype_name(other.dtype) == "string"
    metrics = compare("y", one, other)
    assert metrics.agreement == pytest.approx(2 / 3)
    assert metrics.worst_index == (1,)
    assert compare("y", one, one.copy()).agreement == 1.0
    assert (
        compare("y", one, np.array([1, 2, 3])).mismatch == "dtype int64; the original's is string"
    )


class TestTheLargestDifference:
    """The shortcut for floats says what the whole comparison says."""

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_it_is_the_largest_error_of_the_whole_comparison(self, dtype: str) -> None:
        random = np.random.default_rng(0)
        one = {"a": random.normal(size=(3, 5)), "b": random.normal(size=40_000)}
        one = {name: values.astype(dtype) for name, values in one.items()}
        other = {name: (values + 0.01).astype(dtype) for name, values in one.items()}
        other["b"][-1] += 1  # in the last block
        errors = [compare(name, one[name], other[name]).max_abs for name in one]
        assert largest_difference(one, other) == max(errors) > 0.9
        assert largest_difference(one, one) == 0.0

    @pytest.mark.parametrize(
        ("values", "others", "expected"),
        [
            ([1.0, np.nan], [1.0, 2.0], math.nan),
            ([1.0, np.inf], [1.0, 2.0], math.inf),
            ([1.0, np.inf], [1.5, np.inf], 0.5),
            ([1.0, 2.0], [1.0, 2.0, 3.0], math.inf),
            ([], [], 0.0),
        ],
    )
    def test_what_is_not_finite_counts_as_before(
        self, values: list[float], others: list[float], expected: float
    ) -> None:
        found = largest_difference({"a": np.array(values)}, {"a": np.array(others)})
        assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("candidate", "nans", "passes"),
    [
        ([1.0, np.nan, 3.0, np.nan], 0, True),  # both sides have it where there is nothing
        ([1.0, 2.0, 3.0, np.nan], 1, False),  # only the original
        ([1.0, np.nan, np.nan, np.nan], 1, False),  # at a real position
    ],
)
def test_nan_at_padding_on_both_sides_says_nothing(
    candidate: list[float], nans: int, *, passes: bool
) -> None:
    reference = np.array([[1.0, np.nan, 3.0, np.nan]])
    padding = np.array([[False, True, False, True]])
    found = compare("y", reference, np.array([candidate]), padding)
    assert max(found.nan_reference, found.nan_candidate) == nans
    assert (found.nan_reference == found.nan_candidate == 0) is passes
    assert found.elements == 2
