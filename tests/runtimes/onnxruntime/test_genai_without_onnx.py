"""A package for onnxruntime-genai is built where onnx is not installed."""

import subprocess
import sys


def test_writing_a_package_needs_no_onnx() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None; import convkit.runtimes.onnxruntime.genai_package"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
