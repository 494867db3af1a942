import pytest
from small_recipe import recipe

from convkit.host.recipe.keys.precision import MixedPrecision, QuantizedPrecision

LOW = {
    "default": "float16",
    "keep_float32": ["encoder.layer.*.attention", "**.norm"],
    "saturate": True,
}


def target(precision):
    return recipe(targets={"ort": {"runtime": "onnxruntime", "precision": precision}}).targets[
        "ort"
    ]


@pytest.mark.parametrize(
    ("precision", "low", "text"),
    [
        ("float32", None, None),
        ("bfloat16", MixedPrecision(default="bfloat16"), "bfloat16"),
        ({"default": "float16"}, MixedPrecision(default="float16"), "float16"),
        (
            LOW,
            MixedPrecision.model_validate(LOW),
            "float16 saturated, float32: encoder.layer.*.attention, **.norm",
        ),
    ],
)
def test_a_precision_is_the_same_however_it_is_written(precision, low, text):
    assert target(precision).low_precision == low
    assert low is None or str(low) == text


@pytest.mark.parametrize(
    "pattern",
    ["encoder", "**", "a.**.b", "*", "layer*.x", "*norm", "a*b*c", "0.blocks_1", ".", "a.b."],
)
def test_what_the_worker_reads_as_a_pattern_is_one(pattern):
    assert target({"default": "float16", "keep_float32": [pattern]}).low_precision.keep_float32 == (
        pattern,
    )


def test_an_artifact_of_float32_may_be_optimized_and_one_of_float16_may_not():
    ort = {"runtime": "onnxruntime", "artifact": "optimized"}
    assert recipe(targets={"ort": ort}).targets["ort"].low_precision is None
    with pytest.raises(ValueError, match="write artifact: exported"):
        recipe(targets={"ort": ort | {"precision": "float16"}})


def test_a_quantization_has_others_to_try_and_each_is_one_that_recipes_take() -> None:
    given = QuantizedPrecision.model_validate(
        {"quantize": "static-int8", "per_channel": False, "reduce_range": False, "format": "qdq"}
    )
    roomier, ranges = list(given.with_room()), list(given.with_other_ranges())
    assert [each["per_channel"] for each in roomier] == [True, False, False]
    assert [each.get("equalize") for each in roomier] == [None, True, None]
    assert [each["reduce_range"] for each in roomier] == [False, False, True]
    assert [each["quantize"] for each in ranges] == ["static-int8", "dynamic-int8"]
    assert ranges[0]["calibration"] == {"method": "percentile"}
    for each in (*roomier, *ranges):
        assert QuantizedPrecision.model_validate(each) != given
    left = QuantizedPrecision.model_validate({"quantize": "dynamic-int8", "equalize": True})
    assert not [*left.with_room(), *left.with_other_ranges()]
