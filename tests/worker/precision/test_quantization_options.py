"""What a recipe says of a precision arrives in a worker's request as it was written."""

import pytest

from convkit.host.recipe.keys.precision import MixedPrecision, QuantizedPrecision
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import Calibration, LowPrecision, Precision, Quantization

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
    found = QuantizedPrecision.model_validate(written).for_worker(lambda name: f"here/{name}")
    assert isinstance(found, Quantization)
    sent = encode(found)
    for key, value in written.items():
        if key == "calibration":
            file = value.get("file")
            placed = value | ({"file": f"here/{file}"} if file else {})
            assert {name: sent[key][name] for name in placed} == placed
        else:
            assert sent[key] == value
    assert decode(Precision, sent) == found


@pytest.mark.parametrize(
    "written",
    [{"default": "float16"}, {"default": "bfloat16", "keep_float32": "auto", "saturate": True}],
)
def test_a_low_precision_arrives(written) -> None:
    found = MixedPrecision.model_validate(written).for_worker(str)
    assert decode(Precision, encode(found)) == found
    assert isinstance(found, LowPrecision)
    assert found.patterns == ()


def test_defaults() -> None:
    assert Quantization("static-int8").uses_qdq
    assert not Quantization("static-int8", format="operators").uses_qdq
    assert not Quantization("int4-weights").uses_qdq
    assert Quantization("dynamic-int8", "auto").patterns == ()
    assert Quantization("static-int8").calibrated == Calibration("minmax")
