"""Environments of Core ML have no ONNX: what their stages import must do without."""

import subprocess
import sys

import pytest

ABSENT = ("onnx", "onnx_ir", "onnxscript", "onnxruntime")


@pytest.mark.parametrize("stage", ["precision", "build", "verify", "diagnose"])
def test_a_stage_of_core_ml_is_imported_without_onnx(stage: str) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({ABSENT}));"
        f" sys.path[:] = {sys.path!r}; import convkit.runtimes.coreml.{stage};"
        " import convkit.runtimes.coreml.conversion.program_precision"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
