import pytest
from small_recipe import recipe

from convkit.host.recipe.keys.precision import MixedPrecision

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
