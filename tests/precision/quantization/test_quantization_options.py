import pytest
from convkit.precision.options import low_precision
from convkit.precision.quantization.options import Calibration, Quantization, quantization

from convkit.codec import encode
from convkit.recipe.precision import QuantizedPrecision
from convkit.worker.context import StageFailedError

RECIPES = [
    {"quantize": "dynamic-int8"},
    {"quantize": "dynamic-int8", "keep_float32": "auto", "per_channel": False},
    {
        "quantize": "static-int8",
        "keep_float32": ["head"],
        "format": "operators",
        "calibration": {"method": "entropy"},
    },
    {
        "quantize": "static-int8",
        "calibration": {"method": "percentile", "percentile": 99.9, "file": "data.npz"},
    },
    {"quantize": "int4-weights", "block_size": 64, "format": "qdq"},
]


@pytest.mark.parametrize("written", RECIPES)
def test_what_the_recipe_says_arrives(written) -> None:
    options = {"precision": QuantizedPrecision.model_validate(written).model_dump(mode="json")}
    found = quantization(options)
    assert found is not None
    for key, value in written.items():
        given = encode(found)[key]
        assert (
            {name: given[name] for name in value} == value
            if isinstance(value, dict)
            else given == value
        )
    assert quantization({"precision": encode(found)}) == found
    assert low_precision(options) is None


@pytest.mark.parametrize("precision", ["float32", "float16", {"default": "float16"}])
def test_other_precisions_are_no_quantisation(precision) -> None:
    assert quantization({"precision": precision}) is None
    assert quantization({}) is None


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ({"quantize": "int2"}, "is no quantisation"),
        ({"quantize": "static-int8", "block": 32}, "unknown keys block"),
        ({"quantize": "dynamic-int8", "format": "qdq"}, "write format: operators"),
    ],
)
def test_what_cannot_be_is_said(precision, message) -> None:
    with pytest.raises(StageFailedError, match=message):
        quantization({"precision": precision})


def test_defaults() -> None:
    assert Quantization("static-int8").uses_qdq
    assert not Quantization("static-int8", format="operators").uses_qdq
    assert not Quantization("int4-weights").uses_qdq
    assert Quantization("dynamic-int8", "auto").patterns == ()
    assert Quantization("static-int8").calibrated == Calibration("minmax")
