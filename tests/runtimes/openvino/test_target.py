"""What a recipe may say of an OpenVINO target, and which packages its stages get."""

import ast
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError
from convkit.protocol.messages import LowPrecision
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.target import OpenVINOTarget


def target(**keys) -> OpenVINOTarget:
    return OpenVINOTarget.model_validate({"runtime": "openvino"} | keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"precision": {"quantize": "dynamic-int8"}}, "dynamic-int8 is not available for OpenVINO"),
        ({"precision": {"quantize": "int4-weights"}}, "write static-int8"),
        ({"precision": {"quantize": "static-int8", "format": "operators"}}, "write format: qdq"),
        (
            {"plugin_properties": {"INFERENCE_PRECISION_HINT": "f16"}},
            "from the precision; remove it",
        ),
        ({"plugin_properties": {"INFERENCE_NUM_THREADS": 4}}, "from the precision; remove it"),
        ({"versions": ["==2026.4.*", "== 2026.4.*"]}, "is already in this list"),
        ({"tf32": True}, "NVIDIA GPUs only"),
        ({"source": "torch", "precision": "bfloat16"}, "write source: onnx"),
        ({"device": "cuda"}, "cpu"),
    ],
)
def test_what_it_refuses_it_explains(keys, message):
    with pytest.raises((ValidationError, FaultsError), match=message):
        target(**keys)


def test_its_options_and_precision_reach_the_worker():
    given = target(plugin_properties={"ENABLE_CPU_PINNING": False}, precision="bfloat16")
    assert given.options() == OpenVINOOptions({"ENABLE_CPU_PINNING": False})
    assert given.worker_precision(str) == LowPrecision("bfloat16")
    assert not given.can_stand_in


@pytest.mark.parametrize(
    ("precision", "stage", "expected"),
    [
        ("float32", "build", {"openvino", "numpy"}),
        ("float32", "verify", {"openvino", "numpy", "onnxruntime"}),
        ("bfloat16", "build", {"openvino", "numpy", "onnx", "onnx-ir"}),
        ("bfloat16", "precision", {"numpy", "onnxruntime", "onnx", "onnx-ir"}),
        ("bfloat16", "verify", {"openvino", "numpy", "onnxruntime", "onnx", "onnx-ir"}),
        (
            {"quantize": "static-int8"},
            "build",
            {"openvino", "numpy", "onnxruntime", "onnx", "onnx-ir"},
        ),
    ],
)
def test_each_stage_gets_what_it_imports(precision, stage, expected):
    packages = target(precision=precision).packages(stage, stand_in=False)
    assert set(packages) == expected
    assert len(packages) == len(expected)


def test_a_module_needs_torch_in_the_build_alone():
    module = target(source="torch")
    assert module.builds_from == "model"
    assert "torch" in module.packages("build", stand_in=False)
    assert "torch" not in module.packages("verify", stand_in=False)
    assert "torch" in target().fallback_packages
    assert target(source="onnx").fallback_packages == ()
    assert target(precision="bfloat16").fallback_packages == ()


@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
def test_a_file_is_no_module(kind):
    asked = {"runtime": "openvino", "source": "torch"}
    (fault,) = OpenVINOTarget.faults("ov", asked, {"model": {kind: "model.file"}})
    assert "write source: onnx" in fault.message
    assert not list(OpenVINOTarget.faults("ov", asked, {"model": {"factory": "net.py:f"}}))


def test_reading_torch_programs_has_the_packages_that_openvino_imports_for_it() -> None:
    """OpenVINO itself does not require all of them, and an environment of its own has no others."""
    import openvino.frontend.pytorch as frontend

    folder = Path(frontend.__file__).parent
    imported = {
        name.partition(".")[0]
        for file in (folder / "fx_decoder.py", folder / "ts_decoder.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            else []
        )
    }
    assert {"packaging", "torch"} <= imported
    packages = set(
        OpenVINOTarget(runtime="openvino", source="torch").packages("build", stand_in=False)
    )
    assert imported - sys.stdlib_module_names <= packages
