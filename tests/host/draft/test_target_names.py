"""Targets by the names that people write, in a draft that is a valid recipe."""

from pathlib import Path

import onnx
import pytest

from convkit.host.draft.init_command import Drafting, draft
from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.draft.target_names import asked_targets, known_names
from convkit.host.home import Home
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.errors import UsageError

DYNAMIC, STATIC = (
    {"quantize": f"{kind}-int8", "keep_float32": "auto"} for kind in ("dynamic", "static")
)
AUTO = {"default": "float16", "keep_float32": "auto"}


def parsed(model: str, tmp_path: Path, *targets: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    return parse_recipe(draft_recipe(model, destination=path, targets=targets), path).recipe


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("onnxruntime", {"runtime": "onnxruntime", "precision": "float32"}),
        ("ort-cpu", {"runtime": "onnxruntime", "precision": "float32"}),
        ("onnxruntime-float16", {"runtime": "onnxruntime", "precision": AUTO}),
        ("ORT_fp16", {"runtime": "onnxruntime", "precision": AUTO}),
        ("onnxruntime-cuda-fp16", {"runtime": "onnxruntime", "device": "cuda", "precision": AUTO}),
        ("onnxruntime-int8", {"runtime": "onnxruntime", "precision": DYNAMIC}),
        ("ov-int8", {"runtime": "openvino", "precision": STATIC}),
        ("trt-int8", {"runtime": "tensorrt", "precision": STATIC}),
        ("rtx", {"runtime": "tensorrt-rtx", "precision": "float32"}),
        ("trt-rtx", {"runtime": "tensorrt-rtx", "precision": "float32"}),
        ("coreml", {"runtime": "coreml", "minimum": "iOS17", "precision": "float32"}),
        ("coreml-half", {"runtime": "coreml", "minimum": "iOS17", "precision": AUTO}),
        (
            "coreml-int4",
            {
                "runtime": "coreml",
                "minimum": "iOS18",
                "precision": "float16",
                "compression": {"weights": "int4"},
            },
        ),
    ],
)
def test_what_a_name_means(name: str, expected: dict[str, object]) -> None:
    assert asked_targets([name]) == {name.lower(): expected}


def test_several_names_in_one_text_or_in_several() -> None:
    assert list(asked_targets(["coreml, openvino", "ort-int8,"])) == [
        "coreml",
        "openvino",
        "ort-int8",
    ]
    assert list(asked_targets([])) == ["ort-cpu"]


@pytest.mark.parametrize(
    "name",
    ["tflite", "openvino-dynamic-int8", "coreml-bfloat16", "given", "float16", "onnxruntimes"],
)
def test_a_wrong_name_lists_what_there_is(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked_targets(["openvino", name])
    message = str(refused.value)
    assert f"--target {name}" in message
    assert all(known in message for known in known_names())


@pytest.mark.parametrize("name", known_names())
def test_every_known_name_is_a_target_that_a_recipe_can_have(name: str, tmp_path: Path) -> None:
    recipe = parsed("bert", tmp_path, name)
    assert list(recipe.targets) == [name]
    (target,) = recipe.targets.values()
    assert name.startswith(target.runtime)


def test_int8_of_pictures_quantizes_convolutions(tmp_path: Path) -> None:
    """Dynamic quantization has none: with it, nothing of such a model is quantized."""
    kinds = {
        model: parsed(model, tmp_path, "onnxruntime-int8", "onnxruntime-dynamic-int8").targets
        for model in ("bert", "resnet")
    }
    written = {
        model: [each.quantization.quantize for each in targets.values() if each.quantization]
        for model, targets in kinds.items()
    }
    assert written == {
        "bert": ["dynamic-int8", "dynamic-int8"],
        "resnet": ["static-int8", "dynamic-int8"],
    }


def test_a_signal_s_convolutions_are_quantized_too() -> None:
    kinds = [asked_targets(["onnxruntime-int8"], convolves=each) for each in (True, False)]
    found = [each["onnxruntime-int8"]["precision"] for each in kinds]
    assert [each["quantize"] for each in found if isinstance(each, dict)] == [
        "static-int8",
        "dynamic-int8",
    ]


def test_a_target_that_the_model_cannot_have_is_refused_by_its_name(tmp_path: Path) -> None:
    """Core ML converts models, and this one is a graph."""
    text = '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) {y = Relu(x)}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    asked = Drafting(str(tmp_path / "net.onnx"), tmp_path / "r.yaml", targets=("ort", "coreml"))
    with pytest.raises(UsageError, match=r"--target coreml: .*graph"):
        draft(asked, Home(tmp_path / "home"), print, toolchain="host")
