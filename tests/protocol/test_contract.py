import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.protocol.contract import (
    Axis,
    Contract,
    DimensionError,
    TensorSpec,
    dimension_axes,
    dimension_size,
)

SIZES = {"batch": 3, "past": 5, "s": 7, "_1": 2}


def bracketed(parts: tuple[str, str, str]) -> str:
    left, sign, right = parts
    return f"({left} {sign} {right})"


# Every compound stands in brackets, so that Python's own arithmetic on the text is an independent
# oracle; short enough for the limit on a dimension's length.
EXPRESSIONS = st.recursive(
    st.sampled_from(list(SIZES)) | st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//"]), inner).map(bracketed),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_arithmetic_over_axes_is_pythons(text):
    try:
        expected = eval(
            text, {"__builtins__": {}}, dict(SIZES)
        )  # the text is made above, of axes and digits
    except ZeroDivisionError:
        with pytest.raises(DimensionError, match="divides by zero"):
            dimension_size(text, SIZES)
    else:
        assert dimension_size(text, SIZES) == expected


@given(EXPRESSIONS)
def test_the_axes_of_a_dimension_are_what_its_size_needs(text):
    axes = dimension_axes(text)
    assert set(axes) <= set(SIZES)
    for axis in axes:
        # The axis is looked up wherever it stands, so its lack is an error unless a division by
        # zero comes first.
        with pytest.raises(DimensionError):
            dimension_size(text, {name: size for name, size in SIZES.items() if name != axis})


@given(st.text(max_size=30) | st.text(alphabet="ab1 +-*/()_.,'\"\\[]{}#\n", max_size=300))
def test_any_text_is_a_dimension_or_refused(text):
    try:
        size = dimension_size(text, dict.fromkeys(dimension_axes(text), 1))
    except DimensionError:
        return
    assert type(size) is int


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("batch", ("batch",)),
        (" batch ", ("batch",)),
        ("(a * b) + c", ("a", "b", "c")),
        ("c + b + a", ("c", "b", "a")),
        ("a + a * b", ("a", "b")),
        ("4", ()),
        (4, ()),
    ],
)
def test_axes_are_told_once_in_order_of_appearance(text, axes):
    assert dimension_axes(text) == axes


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a b", "a +", "-1", "a / b", "a ** 2", "a % 2", "a.b", "a()", "a[0]",
        "1.5", "1e3", "0x10", "012", "1if", "1 if a else 2", "a and b", "None", "True", "lambda: 1",
        "'a'", "a\n+ b", "a, b", "a := 1", "é", "a\0",
        "a" * 201, "+".join("a" * 150), "(" * 150, "1" * 150 + "x",
    ],
)  # fmt: skip
def test_what_is_not_arithmetic_over_axes_is_refused(text):
    with pytest.raises(DimensionError):
        dimension_axes(text)


def test_an_undeclared_axis_is_named():
    with pytest.raises(DimensionError, match="names the axis 'sequence', which is not declared"):
        dimension_size("past + sequence", {"past": 1})


def test_a_spec_has_a_shape_for_given_sizes_and_reads_well():
    spec = TensorSpec("keys", "float16", ("batch", 4, "past + s"))
    assert spec.concrete_shape(SIZES) == (3, 4, 12)
    assert str(spec) == "keys: float16[batch, 4, past + s]"
    assert TensorSpec("scalar", "int64", ()).concrete_shape({}) == ()


def test_a_contract_knows_its_axes():
    contract = Contract((), (), (Axis("batch", 1, 2, 4), Axis("s", 2, 8, 16)))
    assert contract.axis("s").max == 16
    assert contract.typical_sizes() == {"batch": 2, "s": 8}
    with pytest.raises(KeyError):
        contract.axis("sequence")
