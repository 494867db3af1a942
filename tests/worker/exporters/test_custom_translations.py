"""Translations of the user's own operators, run by the library of onnxruntime-extensions."""

from pathlib import Path

import numpy as np
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    CustomOps,
    Exporter,
    ExportRequest,
    OperatorLibrary,
    Source,
    Translation,
)
from convkit.worker.graph.graph_session import open_graph
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.runtime_interface.registered_operators import using
from convkit.worker.stages import export

MODEL = """
import onnx
import onnxscript
import torch

@torch.library.custom_op("convkit_tests::split_sign", mutates_args=())
def split_sign(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.clamp(max=0), x.clamp(min=0)

@split_sign.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x)

class Magnitude(torch.nn.Module):
    def forward(self, x):
        below, above = split_sign(x)
        return above - below

def build():
    return Magnitude()

def translations():
    given = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        "NegPos", "ai.onnx.contrib", 1,
        inputs=[given("x", "T")],
        outputs=[given("negative", "T"), given("positive", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
    )
    opset = onnxscript.values.Opset("ai.onnx.contrib", 1)
    operator = onnxscript.values.Op(opset, "NegPos", schema)
    def neg_pos(x):
        return operator(x)
    return {torch.ops.convkit_tests.split_sign.default: neg_pos}

def symbolic():
    def neg_pos(g, x):
        outputs = g.op("ai.onnx.contrib::NegPos", x, outputs=2)
        for output in outputs:
            output.setType(x.type())
        return outputs
    torch.onnx.register_custom_op_symbolic("convkit_tests::split_sign", neg_pos, 17)

def wrong_table():
    return {"convkit_tests::split_sign": None}

def wrong_type():
    return []

def raises():
    return 1 / 0
"""
CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 8)),),
    (TensorSpec("y", "float32", ("batch", 8)),),
    (Axis("batch", 1, 2, 3),),
)
LIBRARY = OperatorLibrary("onnxruntime_extensions/_extensions_pydll*", "onnxruntime-extensions")


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the model and its translations: torch allows an operator once only."""
    file = tmp_path_factory.mktemp("code") / "model.py"
    file.write_text(MODEL)
    return file


def exported(
    code: Path, folder: Path, exporter: Exporter, function: str | None
) -> tuple[Path, list[Finding]]:
    request = ExportRequest(
        Source("factory", path=str(code), identifier="build"),
        CONTRACT,
        {},
        exporter,
        18 if exporter == "torch" else 17,
        "signature",
    )
    translations = (Translation(str(code), function),) if function is not None else ()
    output = folder / "output"
    output.mkdir()
    with using(CustomOps(translations=translations)):
        _, findings = export.run(request, Context(output))
    return output / "model.onnx", findings


@pytest.mark.parametrize(
    ("exporter", "function"), [("torch", "translations"), ("torchscript", "symbolic")]
)
def test_a_translation_exports_what_a_packaged_library_runs(
    code: Path, tmp_path: Path, exporter: Exporter, function: str
) -> None:
    graph, findings = exported(code, tmp_path, exporter, function)
    assert not [finding for finding in findings if finding.is_error]
    x = np.array([[-1, 2, -3, 4, -5, 6, -7, 8]], "float32")
    with using(CustomOps((LIBRARY,))):
        assert open_graph(graph).run({"x": x})["y"].tolist() == np.abs(x).tolist()


@pytest.mark.thorough
def test_an_operator_without_a_translation_is_named(code: Path, tmp_path: Path) -> None:
    _, (finding,) = exported(code, tmp_path, "torch", None)
    assert finding.code == "V103"
    assert "convkit_tests::split_sign" in finding.message
    assert "custom_ops: [path/to/file.py:function]" in str(finding.remedy)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("wrong_table", "maps 'convkit_tests::split_sign' to None"),
        ("wrong_type", "returned a list"),
        ("raises", "raised ZeroDivisionError"),
        ("absent", "no 'absent'"),
    ],
)
def test_a_function_that_returns_no_translations_is_refused(
    code: Path, tmp_path: Path, function: str, message: str
) -> None:
    with pytest.raises(StageFailedError, match=message) as caught:
        exported(code, tmp_path, "torch", function)
    assert [finding.code for finding in caught.value.findings] == ["E322"]
