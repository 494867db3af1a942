"""What is doubtful about a recipe before anything runs."""

from typing import Any

import pytest
from small_recipe import recipe

from convkit.host.recipe.keys.recipe import Tolerance
from convkit.host.recipe.keys.tolerances import limits_for
from convkit.host.verdict.findings.doubtful_settings import advice
from convkit.protocol.findings.finding import Finding

LABELS = {"name": "label", "dtype": "int64", "shape": ["batch"]}
Y = {"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 4]}


def found(target: dict[str, Any] | None = None, **changes: Any) -> list[Finding]:
    chosen = recipe(targets={"t": {"runtime": "onnxruntime", **(target or {})}}, **changes)
    return advice(chosen, chosen.targets["t"])


def codes(target: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    return [finding.code for finding in found(target, **changes)]


def mask(name: str, sample: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "int64", "shape": ["batch", "sequence"], "sample": sample}


def test_a_usual_recipe_is_fine() -> None:
    assert codes() == []
    assert codes({"precision": "float16", "tolerance": {"max_abs": 2e-2}}) == []


@pytest.mark.parametrize(
    ("precision", "limit", "expected"),
    [
        ("float16", 1e-4, ["N502"]),
        ("float16", 1e-3, []),
        ("bfloat16", 1e-3, ["N502"]),
        ("bfloat16", 1e-2, []),
        ({"quantize": "dynamic-int8"}, 1e-3, ["N502"]),
        ({"quantize": "dynamic-int8"}, 0.1, []),
        ({"default": "float16", "keep_float32": ["head"]}, 1e-5, ["N502"]),
        ("float32", 1e-6, []),
    ],
)
def test_limits_below_the_precisions_resolution(
    precision: Any, limit: float, expected: list[str]
) -> None:
    assert codes({"precision": precision, "tolerance": {"max_abs": limit}}) == expected
    assert codes({"precision": precision, "tolerance": {"atol": limit}}) == expected
    assert codes({"precision": precision, "tolerance": {"atol": limit, "rtol": 0.1}}) == []


@pytest.mark.parametrize(
    ("precision", "limit"),
    [
        ("float16", 0.0098),
        ({"default": "float16", "keep_float32": ["head"]}, 0.0098),
        ("bfloat16", 0.0781),
        ({"quantize": "dynamic-int8"}, 0.2),
        ({"quantize": "int4-weights"}, 0.4),
    ],
)
def test_a_low_precision_without_a_tolerance_is_judged_by_what_its_type_allows(
    precision: Any, limit: float
) -> None:
    (finding,) = found({"precision": precision}, verify={})
    assert (finding.code, finding.severity) == ("N507", "note")
    assert f"nrmse <= {limit}" in finding.message
    chosen = recipe(targets={"ort": {"runtime": "onnxruntime", "precision": precision}}, verify={})
    assert limits_for(chosen, chosen.targets["ort"], "y", None) == {"nrmse": limit}


def test_a_written_tolerance_or_float32_is_left_alone() -> None:
    assert codes({"precision": "float16", "tolerance": {"max_abs": 0.02}}, verify={}) == []
    assert codes({"precision": "float16", "outputs": {"y": {"max_abs": 0.02}}}, verify={}) == []
    assert codes({}, verify={}) == []


def test_a_tolerance_of_the_recipe_holds_for_every_target() -> None:
    chosen = recipe(
        targets={"ort": {"runtime": "onnxruntime", "precision": "float16"}},
        verify={"tolerance": {"max_abs": 0.02}},
    )
    assert limits_for(chosen, chosen.targets["ort"], "y", None) == {"max_abs": 0.02}
    by_output = recipe(
        targets={"ort": {"runtime": "onnxruntime", "precision": "float16"}},
        verify={"outputs": {"y": {"max_abs": 0.03}}},
    )
    assert limits_for(by_output, by_output.targets["ort"], "y", None) == {"max_abs": 0.03}


def test_an_inherited_limit_below_the_types_resolution_is_named_as_such() -> None:
    (finding,) = found({"precision": "float16"})
    assert "inherited from verify.tolerance" in finding.message
    assert finding.severity == "warning"
    (own,) = found({"precision": "float16", "tolerance": {"max_abs": 1e-5}})
    assert "inherited" not in own.message


def test_labels_of_a_low_precision_target_are_judged_as_the_recipe_says() -> None:
    chosen = recipe(
        outputs=[{"name": "label", "dtype": "int64", "shape": ["batch"]}],
        verify={"tolerance": {"agreement": 0.99}},
        targets={"ort": {"runtime": "onnxruntime", "precision": "float16"}},
    )
    assert limits_for(chosen, chosen.targets["ort"], "label", None) == {"agreement": 0.99}


def test_cosine_alone_is_blind_to_scale() -> None:
    assert codes({"tolerance": {"cosine": 0.99}}) == ["N503"]
    assert codes({"tolerance": {"cosine": 0.99, "rms": 0.1}}) == []
    chosen = recipe()
    override = Tolerance.model_validate({"cosine": 0.9})
    assert [f.code for f in advice(chosen, chosen.targets["ort"], override)] == ["N503"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, []),
        ({"agreement": 0.99}, []),
        ({"max_abs": 0.5}, []),
        ({"atol": 1.0, "rtol": 1e-6}, []),
        ({"max_abs": 1.0}, ["N504"]),
        ({"cosine": 0.99}, ["N504"]),
    ],
)
def test_labels_judged_by_distance(own: dict[str, float] | None, expected: list[str]) -> None:
    target = {"outputs": {"label": own}} if own else {}
    assert codes(target, outputs=[Y, LABELS]) == expected


def test_pixels_may_be_judged_by_distance() -> None:
    pixels = {"name": "image", "dtype": "uint8", "shape": ["batch", 4]}
    assert codes({"outputs": {"image": {"max_abs": 1.0}}}, outputs=[pixels, Y]) == []


@pytest.mark.parametrize(
    ("name", "sample", "expected"),
    [
        ("attention_mask", {"integers": [0, 2]}, ["C401"]),
        ("key_padding_mask", {"integers": [0, 2]}, ["C401"]),
        ("attention_mask", "padding_mask", []),
        ("key_padding_mask", "key_padding_mask", []),
        ("attention_mask", {"integers": [0, 9]}, []),
        ("token_type_ids", {"integers": [0, 2]}, []),
    ],
)
def test_a_mask_drawn_as_plain_integers(name: str, sample: Any, expected: list[str]) -> None:
    findings = found(inputs=[mask("ids", "token_ids"), mask(name, sample)])
    assert [finding.code for finding in findings] == expected
    for finding in findings:
        assert finding.remedy is not None
        marked = "key_padding_mask" if name == "key_padding_mask" else "padding_mask"
        assert finding.remedy.change == {"inputs.1.sample": marked}


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("padding_mask", []),
        ("key_padding_mask", []),
        ({"integers": [0, 2]}, ["C401"]),
        ("token_ids", ["C402"]),
    ],
)
def test_an_output_masked_by_what_is_no_mask(sample: Any, expected: list[str]) -> None:
    inputs = [mask("ids", "token_ids"), mask("valid", sample)]
    assert codes(inputs=inputs, outputs=[{**Y, "mask": "valid"}]) == expected


@pytest.mark.parametrize(
    ("model", "dtype", "precision", "limit"),
    [
        ("bfloat16", "float32", "float32", 0.0781),  # the original casts its scores at the end
        ("stored", "bfloat16", "float32", 0.0781),
        ("stored", "bfloat16", "float16", 0.0781),
        ("float16", "float16", "bfloat16", 0.0781),
        ("float16", "float16", "float32", 0.0098),
        ("bfloat16", "bfloat16", {"quantize": "int4-weights"}, 0.4),
    ],
)
def test_an_original_in_half_precision_rounds_too_and_the_coarser_type_decides(
    model: str, dtype: str, precision: Any, limit: float
) -> None:
    chosen = recipe(
        model={"config": {"architecture": "bert"}, "dtype": model},
        outputs=[Y | {"dtype": dtype}],
        targets={"ort": {"runtime": "onnxruntime", "precision": precision}},
        verify={},
    )
    assert limits_for(chosen, chosen.targets["ort"], "y", None) == {"nrmse": limit}
    assert [each.code for each in advice(chosen, chosen.targets["ort"])] == ["N507"]
