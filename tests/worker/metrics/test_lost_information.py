import ml_dtypes
import numpy as np
import pytest

from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.metrics.lost_information import collapse_findings, measure_spread

RANDOM = np.random.default_rng(0)
VARIED = RANDOM.normal(size=(4, 6, 8)).astype(np.float32)


def found(reference, candidate, padding=None, *, rows=True, cases=1):
    spreads = [
        measure_spread(f"case{n}", "y", reference, candidate, padding, rows=rows)
        for n in range(cases)
    ]
    return [
        (finding.evidence["across"], finding.place.case)
        for finding in collapse_findings(filter_none(spreads))
    ]


def filter_none(spreads):
    return [spread for spread in spreads if spread is not None]


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_a_constant_is_a_collapse_whatever_its_value(value):
    assert found(VARIED, np.full_like(VARIED, value)) == [("elements", "case0")]


def test_the_first_case_speaks():
    assert found(VARIED, np.zeros_like(VARIED), cases=3) == [("elements", "case0")]


def test_rows_that_are_all_the_same_are_a_collapse():
    same = np.repeat(VARIED[:1], 4, axis=0)
    assert found(VARIED, same) == [("rows", "case0")]
    assert found(VARIED, same, rows=False) == []
    assert found(same, same) == []  # nothing is lost where the original's rows are the same


def test_an_inaccurate_output_has_not_collapsed():
    noisy = VARIED * 0.1 + RANDOM.normal(size=VARIED.shape).astype(np.float32)
    assert found(VARIED, noisy) == []
    assert found(VARIED, VARIED * 0.01) == []


def test_what_is_left_may_be_rounding():
    assert found(VARIED, VARIED * 1e-5) == [("elements", "case0")]


def test_an_original_that_hardly_varies_has_nothing_to_lose():
    nearly = (1000 + VARIED).astype(np.float32)
    assert found(nearly, np.full_like(nearly, 1000)) == []
    assert found(np.ones_like(VARIED), np.ones_like(VARIED)) == []


def test_a_case_of_small_values_is_measured_by_the_largest_of_all_cases():
    """A sigmoid's output near zero in one case: eight-bit steps leave nothing of it, and that is no
    collapse.
    """
    small = (0.002 + 0.001 * np.abs(VARIED)).astype(np.float32)
    spreads = [
        measure_spread("small", "y", small, np.zeros_like(small), None, rows=True),
        measure_spread("large", "y", VARIED, VARIED, None, rows=True),
    ]
    assert collapse_findings(spreads) == []


def test_padding_is_passed_over():
    padding = np.zeros((4, 6), dtype=bool)
    padding[1:, 2:] = True
    collapsed = np.where(padding[:, :, None], VARIED, np.float32(0))
    assert found(VARIED, collapsed, padding) == [("elements", "case0")]
    assert found(VARIED, collapsed) == []
    # What only padding makes different between rows is the same for every row.
    rows = np.where(padding[:, :, None], VARIED, VARIED[:1])
    assert found(VARIED, rows, padding) == [("rows", "case0")]


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        (VARIED, np.where(VARIED > 1, np.nan, 0).astype(np.float32)),
        (np.where(VARIED > 1, np.inf, VARIED).astype(np.float32), np.zeros_like(VARIED)),
        (VARIED, np.zeros((4, 6), np.float32)),
        (np.arange(8), np.zeros(8, np.int64)),
        (VARIED[:1, :1, :1], np.zeros((1, 1, 1), np.float32)),
        (VARIED[:0], VARIED[:0]),
    ],
    ids=["nan", "infinite", "shape", "whole numbers", "one element", "none"],
)
def test_what_says_nothing_is_not_measured(reference, candidate):
    assert measure_spread("case", "y", reference, candidate, None, rows=True) is None


@pytest.mark.parametrize("kept", ["values", "bits"])
def test_bfloat16(kept):
    varied = VARIED.astype(ml_dtypes.bfloat16)
    zeros = np.zeros_like(varied)
    if kept == "bits":
        varied, zeros = varied.view(BFLOAT16_BITS), zeros.view(BFLOAT16_BITS)
    assert found(varied, zeros) == [("elements", "case0")]
    assert found(varied, varied) == []


def test_chunks_give_what_the_whole_gives():
    large = RANDOM.normal(size=(3, 70_000)).astype(np.float32)
    spread = measure_spread("case", "y", large, large[::-1], None, rows=True)
    assert spread.elements[0] == pytest.approx(large.max() - large.min())
    assert spread.rows[1] == pytest.approx((large.max(axis=0) - large.min(axis=0)).max())


def test_a_scalar_row_is_no_row():
    assert found(VARIED[0, 0], VARIED[0, 0], rows=True) == []
