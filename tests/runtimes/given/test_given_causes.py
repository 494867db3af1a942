"""A given file that is wrong: what in it is not as in the original."""

import json

import onnx
import onnx.parser
import pytest
from given_models import GRAPH, NAMES, convert, save_onnx, save_tflite

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

TENSORS = {"dtype": "float32", "shape": ["batch", 4]}


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    """Run an audit of four files, and return the targets by name."""
    folder = tmp_path_factory.mktemp("audit")
    save_onnx(folder / "original.onnx")
    save_tflite(folder / "right.tflite")
    save_tflite(folder / "exchanged.tflite", exchanged=True)
    number = GRAPH.replace("= 3.0", "= 3.3")
    onnx.save(onnx.parser.parse_model(number), folder / "number.onnx")
    operator = GRAPH.replace("total = Add", "total = Mul")
    onnx.save(onnx.parser.parse_model(operator), folder / "operator.onnx")
    convert(folder / "operator.onnx")
    tflite = {"runtime": "given", "file": "right.tflite"}
    audited = {
        "right": {**tflite, "names": NAMES},
        "exchanged": {**tflite, "file": "exchanged.tflite", "names": NAMES},
        "number": {"runtime": "given", "file": "number.onnx"},
        "operator": {"runtime": "given", "file": "operator.onnx"},
        "ir": {"runtime": "given", "file": "operator.xml"},
    }
    text = json.dumps(
        {
            "schema": 1,
            "name": "given",
            "model": {"onnx": "original.onnx"},
            "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
            "inputs": [{"name": name, **TENSORS} for name in ("x", "y")],
            "outputs": [{"name": name, **TENSORS} for name in ("out", "total")],
            "targets": audited,
        }
    )
    (folder / "recipe.yaml").write_text(text)
    options = RunOptions(
        recipe=folder / "recipe.yaml", home=Home(folder / "home"), toolchain="host", track=False
    )
    return {target.name: target for target in run_recipe(options).record.targets}


@pytest.mark.thorough
def test_a_right_file_has_no_cause(targets):
    assert targets["right"].leading is None


def test_a_wrong_number_is_named_with_the_original_s(targets):
    found = targets["number"].leading
    assert (found.code, found.evidence["proven"]) == ("N405", True)
    assert found.place.node or found.place.tensor
    assert "3.3" in found.message
    assert "should be 3" in found.message
    assert "convkit does not edit it" in found.remedy.text


def test_a_wrong_operator_is_named(targets):
    found = targets["operator"].leading
    assert (found.code, found.place.tensor) == ("N405", "total")
    assert "it is Mul and should be Add" in found.message


def test_a_wrong_operation_of_an_ir_is_named(targets):
    found = targets["ir"].leading
    assert (found.code, found.place.tensor) == ("N405", "total")
    assert "it is Mul and should be Add" in found.message


def test_exchanged_outputs_are_named(targets):
    found = targets["exchanged"].leading
    assert found.code == "C208"
    assert not found.remedy.change, "other names would put the outputs into another order"
