import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.recipe.reading.yaml_scalars import ScalarError, plain_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("tRUE", "tRUE"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1e-3", 1e-3),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E+3", -1500.0),
        ("1e", "1e"),
        (".", "."),
        ("+", "+"),
        ("e3", "e3"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2024-01-31", "2024-01-31"),
        ("0.1.0", "0.1.0"),
        ("==2.13.*", "==2.13.*"),
        ("-", "-"),
        ("--1", "--1"),
        ("0o8", "0o8"),
        ("0x", "0x"),
        ("inf", "inf"),
        ("nan", "nan"),
        ("٣", "٣"),
        ("1\uff12", "1\uff12"),
        (str(2**64 - 1), 2**64 - 1),
        (str(-(2**63)), -(2**63)),
        ("0" * 100 + "7", 7),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_scalars_are_read_by_yaml_1_2(text, value):
    read = plain_value(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        ".inf",
        "-.INF",
        "+.Inf",
        ".nan",
        ".NaN",
        "1e309",
        "-1e400",
        str(2**64),
        str(-(2**63) - 1),
        "9" * 10_000,
        "0x" + "f" * 40,
        "0o" + "7" * 100,
        "1." + "0" * 10_000,
    ],
)
def test_numbers_that_a_recipe_cannot_hold_are_refused(text):
    with pytest.raises(ScalarError):
        plain_value(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_survives_its_repr(number):
    assert plain_value(repr(number)) == number


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["", "x", "o"]))
def test_every_64_bit_number_survives(number, base):
    text = format(abs(number), f"#{base}") if base else str(number)
    assert plain_value(text) == (abs(number) if base else number)


@given(st.text(alphabet="0123456789+-.eExoabn_:inf", max_size=12) | st.text(max_size=30))
def test_any_text_is_a_value_or_refused(text):
    try:
        value = plain_value(text)
    except ScalarError:
        return
    assert value is None or isinstance(value, bool | int | str) or math.isfinite(value)
