"""Two figures that differ never read the same."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convkit.protocol.metrics.number_text import distinct_texts

ANY = st.floats(allow_nan=True, allow_infinity=True)
# Neighbors, which few digits cannot tell apart, are drawn too rarely from all numbers.
CLOSE = st.builds(
    lambda number, share: (number, number * (1 + share)),
    st.floats(-1e300, 1e300),
    st.one_of(st.floats(-1e-3, 1e-3), st.floats(-1e-15, 1e-15)),
)
PAIRS = st.one_of(st.tuples(ANY, ANY), CLOSE)
DIGITS = st.integers(1, 9)


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@given(PAIRS, DIGITS)
@example((0.99999, 0.999991), 5)
@example((1e-4, 1.00001e-4), 3)
@example((0.0, -0.0), 3)
def test_the_texts_differ_exactly_where_the_numbers_do(
    pair: tuple[float, float], digits: int
) -> None:
    one, other = distinct_texts(*pair, digits=digits)
    assert (one == other) == same(*pair)


@given(PAIRS, DIGITS)
def test_the_texts_are_in_the_order_of_the_numbers(pair: tuple[float, float], digits: int) -> None:
    one, other = map(float, distinct_texts(*pair, digits=digits))
    if pair[0] < pair[1]:
        assert one < other
    elif pair[0] > pair[1]:
        assert one > other


@given(PAIRS, DIGITS)
def test_no_digit_too_many(pair: tuple[float, float], digits: int) -> None:
    texts = distinct_texts(*pair, digits=digits)
    fewest = [f"{number + 0.0:.{digits}g}" for number in pair]
    if fewest[0] != fewest[1] or same(*pair):
        assert list(texts) == fewest


@pytest.mark.parametrize(
    ("numbers", "digits", "texts"),
    [
        ((1.2e-5, 1e-4), 3, ("1.2e-05", "0.0001")),
        ((0.00010001, 1e-4), 3, ("0.00010001", "0.0001")),
        ((0.999989, 0.99999), 6, ("0.999989", "0.99999")),
        ((0.9999899, 0.99999), 6, ("0.9999899", "0.99999")),
        ((0.9999998, 0.99999, 1.0), 6, ("0.9999998", "0.99999", "1")),
        ((math.nan, 1e-4), 3, ("nan", "0.0001")),
        ((math.inf, math.nan), 3, ("inf", "nan")),
        ((2.0, 2.0), 3, ("2", "2")),
    ],
)
def test_examples(numbers: tuple[float, ...], digits: int, texts: tuple[str, ...]) -> None:
    assert distinct_texts(*numbers, digits=digits) == texts
