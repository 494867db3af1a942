"""A file that onnxruntime refuses is run by onnx's own evaluator, if that can."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.reference.original_model import OnnxOriginal

CONTRACT = Contract((TensorSpec("x", "float64", (3,)),), (TensorSpec("y", "float64", (3,)),), ())


def original(folder: Path, line: str) -> OnnxOriginal:
    text = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>'
    text += f" g (double[3] x) => (double[3] y) {{ {line} }}"
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return OnnxOriginal(Source("onnx", path=str(path)), CONTRACT)


# onnxruntime 1.31 has no kernel of Atan for float64.
def test_a_refused_file_is_run_by_the_standards_evaluator(tmp_path: Path) -> None:
    x = np.array([-3, 0.5, 40.0])
    found = original(tmp_path, "y = Atan(x)").run({"x": x})["y"]
    np.testing.assert_allclose(found, np.arctan(x), rtol=1e-15)


def test_what_neither_can_run_is_told_with_the_runtimes_message(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="Twice"):
        original(tmp_path, "y = own.Twice(x)")
