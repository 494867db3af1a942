"""Environments of ONNX files have no torch: what their stages import must do without."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("stage", ["reference", "graph_build", "graph_verify"])
@pytest.mark.sampled(2)
def test_a_stage_of_an_onnx_file_is_imported_without_torch(stage: str) -> None:
    program = (
        "import sys; sys.modules['torch'] = None;"
        f" sys.path[:] = {sys.path!r}; import convkit.worker.stages.{stage}"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
