import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.recipe.checks.names_axes_and_sizes import nearest, sample_fault
from convkit.host.recipe.keys.all_targets import faults_between_parts

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "inputs",
                    "outputs",
                    "axes",
                    "verify",
                    "targets",
                    "name",
                    "shape",
                    "from",
                    "min",
                    "model",
                    "omit",
                    "profiles",
                ]
            ),
            inner,
        )
    ),
    max_leaves=30,
)


@given(
    st.dictionaries(
        st.sampled_from(["inputs", "outputs", "axes", "verify", "targets", "model"]), JSON
    )
)
def test_values_of_any_form_are_passed_over(recipe):
    for fault in faults_between_parts(recipe):
        assert fault.message


@pytest.mark.parametrize(
    ("dtype", "kind", "numbers", "says"),
    [
        ("float32", "token_ids", (), "integers, but the input is float32"),
        ("int8", "encoded_image", (), "its dtype would be uint8"),
        ("bfloat16", "positions", (), "integers, but the input is bfloat16"),
        ("int64", "uniform", (0, 1), "samples fractions"),
        ("int64", "columns", (0, 1), "samples fractions"),
        ("bool", "normal", (0, 1), "write {integers: [0, 2]}"),
        ("bool", "integers", (0, 3), "outside bool, which ranges from 0 to 1"),
        ("uint8", "integers", (-1, 3), "outside uint8, which ranges from 0 to 255"),
        ("int8", "integers", (0, 129), "outside int8, which ranges from -128 to 127"),
        ("int4", "constant", (8.0,), "outside int4, which ranges from -8 to 7"),
        ("int64", "constant", (0.5,), "not an integer"),
        ("string", "integers", (0, 2), "write {strings: [texts]}"),
        ("int64", "strings", (), "found strings, but the input is int64"),
        ("float32", "lengths", (), "lengths are integers"),
    ],
)
def test_a_sample_that_does_not_fit_the_dtype_is_refused(dtype, kind, numbers, says):
    assert says in sample_fault(dtype, kind, numbers)


@pytest.mark.parametrize(
    ("dtype", "kind", "numbers"),
    [
        ("int64", "token_ids", ()),
        ("float32", "padding_mask", ()),
        ("bool", "padding_mask", ()),
        ("bool", "integers", (0, 2)),
        ("uint8", "integers", (0, 256)),
        ("float16", "integers", (0, 9)),
        ("float32", "constant", (0.5,)),
        ("int64", "constant", (3.0,)),
        ("float64", "normal", (0, 1)),
        ("int32", "file", ()),
        ("string", "strings", ()),
        ("string", "file", ()),
        ("int32", "lengths", ()),
    ],
)
def test_a_sample_that_fits_is_accepted(dtype, kind, numbers):
    assert sample_fault(dtype, kind, numbers) is None


def test_the_nearest_word_ignores_case_and_is_near():
    assert nearest("Name", ["name", "model"]) == "name"
    assert nearest("precison", ["precision", "device"]) == "precision"
    assert nearest("zzz", ["precision", "device"]) is None
    assert nearest("x", []) is None
