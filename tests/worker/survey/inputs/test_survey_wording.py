"""What a survey says where the file does not run."""

import onnx
import pytest

from convkit.worker.graph.graph_session import open_graph
from convkit.worker.runtime_interface.sessions import ModelRefusedError
from convkit.worker.survey.inputs.survey_messages import no_start, refused


@pytest.mark.parametrize(
    ("operator", "reason"),
    [("acme.Unheard", "acme:Unheard"), ("Unheard", "No Op registered for Unheard")],
)
def test_a_refusal_is_the_reason_without_onnxruntime_s_preamble(tmp_path, operator, reason):
    """With what onnxruntime itself says: the note is cut, and the path must not use it up."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    path = folder / "model.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[1] x) => (float[1] y)'
    onnx.save(onnx.parser.parse_model(text + f" {{ y = {operator}(x) }}"), path)
    with pytest.raises(ModelRefusedError) as error:
        open_graph(path)
    note = refused(str(error.value))
    assert f"are guesses: {reason}" in note
    assert "ONNXRuntimeError" not in note
    assert "longlong" not in note


def test_a_note_leaves_the_period_to_the_sentence():
    assert no_start("It failed.").endswith("the first error: It failed")
    assert no_start("word " * 100).endswith("word [...]")
