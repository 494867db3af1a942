"""Inputs that a draft gives a single value, as their values decide sizes or make a model fail."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

from convkit.host.draft.file_inspection import survey_model
from convkit.host.home import Home
from convkit.protocol.messages import Sample, SurveyRequest, SurveyResult
from convkit.worker.job_context import Context
from convkit.worker.stages.survey_file import run

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
# Counts up to `n` while `go`: no rows without it. With more than five steps, it leaves its table.
LOOP = """g (int64 n, bool go, float[2] x) => (float[2] last, float[rows,2] steps) {
    last, steps = Loop(n, go, x) <body = step (int64 i, bool c, float[2] a)
        => (bool on, float[2] b, float[2] each) {
        table = Constant<value_floats=[1.0, 2.0, 3.0, 4.0, 5.0]>()
        on = Identity(c)
        value = Gather(table, i)
        b = Add(a, value)
        each = Identity(b)
    }>
}"""


def surveyed(folder: Path, text: str) -> SurveyResult:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    result, _ = run(SurveyRequest(str(path), 30.0), Context(folder))
    return result


def test_a_loop_runs_with_a_condition_and_a_count_that_it_accepts(tmp_path):
    result = surveyed(tmp_path, LOOP)
    assert result.samples["go"] == Sample("constant", (1,))
    assert result.samples["n"] == Sample("constant", (2,))
    assert [spec.shape for spec in result.contract.outputs] == [(2,), (2, 2)]
    assert any("'go' decides the shape of 'steps': 1 was chosen" in note for note in result.notes)
    assert any("fails with some values of 'n': 2 was chosen" in note for note in result.notes)
    assert not any("'n' may have" in note for note in result.notes)


def test_a_size_that_the_file_states_is_the_value_that_decides_it(tmp_path):
    result = surveyed(tmp_path, LOOP.replace("float[rows,2]", "float[5,2]"))
    assert result.samples["n"] == Sample("constant", (5,))


def test_the_value_of_a_bool_that_leaves_rows_is_held(tmp_path):
    text = """g (bool skip, float[2] x) => (float[rows,2] y) {
        y = If(skip) <
            then_branch = t () => (float[a,2] none) {
                shape = Constant<value_ints=[0, 2]>() none = ConstantOfShape(shape) },
            else_branch = e () => (float[b,2] some) {
                times = Constant<value_ints=[3, 2]>() some = Expand(x, times) }>
    }"""
    assert surveyed(tmp_path, text).samples["skip"] == Sample("constant", (0,))


@pytest.mark.parametrize("body", ["f = Cast<to=1>(go) y = Mul(x, f)", "y = Where(go, x, x)"])
def test_a_bool_that_decides_no_size_is_drawn(tmp_path, body):
    result = surveyed(tmp_path, f"g (bool go, int64 n, float[2] x) => (float[2] y) {{ {body} }}")
    assert result.samples["go"] == Sample("integers", (0, 2))
    assert result.samples["n"].kind == "integers"


def test_a_file_that_is_tried_twice_is_announced_once(tmp_path):
    """A known package has the file's operator, so a second attempt loads that package."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.contrib" : 1]>'
        "g (float[2] x) => (float[2] y) { y = ai.onnx.contrib.Unheard(x) }"
    )
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    said: list[str] = []
    result = survey_model(path, Home(tmp_path / "home"), said.append, toolchain="host")
    assert result.libraries
    assert not result.ran
    assert said.count("reading the graph") == 1


def test_the_age_of_an_opset_is_noted(tmp_path):
    for opset, is_noted in ((6, True), (7, False)):
        path = tmp_path / f"{opset}.onnx"
        text = f'<ir_version: 3, opset_import: ["" : {opset}]> g (float[2] x) => (float[2] y)'
        onnx.save(onnx.parser.parse_model(text + " { h = Add(x, x) y = Relu(h) }"), path)
        result, _ = run(SurveyRequest(str(path), 30.0), Context(tmp_path))
        assert any("from opset 7 on" in note for note in result.notes) is is_noted
        assert result.ran is not is_noted
