"""A graph of whole numbers in a float type of low precision: there is nothing to lower."""

from pathlib import Path

import onnx
import pytest

from convkit.protocol.messages import LowPrecision
from convkit.worker.building.lowered_files import lower_file

GRAPH = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (TYPE[N, 3] x) => (TYPE[N, 3] y) {
        doubled = Add(x, x)
        y = Mul(doubled, x)
    }
"""


@pytest.mark.parametrize(
    ("kind", "kept", "codes"), [("int64", (), []), ("float", (), []), ("float", (".",), ["N207"])]
)
def test_only_floats_that_stay_whole_are_an_error(
    kind: str, kept: tuple[str, ...], codes: list[str], tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(GRAPH.replace("TYPE", kind))
    onnx.save(model, tmp_path / "model.onnx")
    precision = LowPrecision("float16", kept)
    found = lower_file(tmp_path / "model.onnx", tmp_path / "low.onnx", precision)
    assert [each.code for each in found if each.code == "N207"] == codes
